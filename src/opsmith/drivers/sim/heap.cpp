// See heap.h.
#include "heap.h"

#include <algorithm>
#include <bit>

namespace sim {

// A run of granules, live or free. Blocks form a list in address order; free ones also hang in their size
// class.
struct Heap::Block {
  uint64_t offset;
  uint64_t bytes;
  Block* before = nullptr;  // neighbours by address
  Block* after = nullptr;
  Block* previous_free = nullptr;
  Block* next_free = nullptr;
  uint64_t kept = 0;  // while free: about so many of its bytes still hold pages
  bool is_free = false;
};

namespace {

// Note [Pages of released blocks]
// Giving pages back costs a system call and then a page fault per 4 KiB on the next use. So released memory
// keeps its pages, up to a bound for each device; beyond it, large blocks give theirs back as they are
// released. Blocks below the threshold always keep them. What a free block keeps is an estimate: its pages
// are taken to lie at its start, which is where allocations are cut from.
constexpr uint64_t kMostKept = uint64_t{1} << 30;
constexpr uint64_t kLargeBlock = uint64_t{1} << 20;

}  // namespace

// ---- live blocks ----

size_t Heap::LiveBlocks::home_slot(uint64_t offset) const {
  // Fibonacci hashing: neighbouring offsets spread over the table.
  const uint64_t hash = (offset / kGranule) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(hash >> 32) & (slots_.size() - 1);
}

void Heap::LiveBlocks::insert(Block* block) {
  if (2 * (count_ + 1) > slots_.size()) {
    grow();
  }
  size_t slot = home_slot(block->offset);
  while (slots_[slot] != nullptr) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = block;
  ++count_;
}

size_t Heap::LiveBlocks::slot_of(uint64_t offset) const {
  size_t slot = home_slot(offset);
  while (slots_[slot] != nullptr && slots_[slot]->offset != offset) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

Heap::Block* Heap::LiveBlocks::remove(uint64_t offset) {
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(offset);
  Block* const found = slots_[slot];
  if (found == nullptr) {
    return nullptr;
  }
  // Close the gap: each later block of the run moves up unless that would put it before its home slot.
  for (size_t next = (slot + 1) & mask; slots_[next] != nullptr; next = (next + 1) & mask) {
    const size_t home = home_slot(slots_[next]->offset);
    if (((next - home) & mask) >= ((next - slot) & mask)) {
      slots_[slot] = slots_[next];
      slot = next;
    }
  }
  slots_[slot] = nullptr;
  --count_;
  return found;
}

void Heap::LiveBlocks::grow() {
  std::vector<Block*> old(2 * slots_.size());
  old.swap(slots_);
  count_ = 0;
  for (Block* block : old) {
    if (block != nullptr) {
      insert(block);
    }
  }
}

// ---- free lists ----

Heap::SizeClass Heap::class_of(uint64_t granules) {
  if (granules < kSecondLevel) {
    return {0, static_cast<int>(granules)};
  }
  const int log2 = std::bit_width(granules) - 1;
  return {log2 - kSecondLevelBits + 1,
          static_cast<int>(granules >> (log2 - kSecondLevelBits)) & (kSecondLevel - 1)};
}

void Heap::link_free(Block* block) {
  const SizeClass size = class_of(block->bytes / kGranule);
  Block*& head = free_[size.first][size.second];
  block->is_free = true;
  block->previous_free = nullptr;
  block->next_free = head;
  if (head != nullptr) {
    head->previous_free = block;
  }
  head = block;
  second_bits_[size.first] |= 1u << size.second;
  first_bits_ |= uint64_t{1} << size.first;
}

void Heap::unlink_free(Block* block) {
  const SizeClass size = class_of(block->bytes / kGranule);
  if (block->next_free != nullptr) {
    block->next_free->previous_free = block->previous_free;
  }
  if (block->previous_free != nullptr) {
    block->previous_free->next_free = block->next_free;
  } else {
    free_[size.first][size.second] = block->next_free;
    if (block->next_free == nullptr) {
      second_bits_[size.first] &= ~(1u << size.second);
      if (second_bits_[size.first] == 0) {
        first_bits_ &= ~(uint64_t{1} << size.first);
      }
    }
  }
  block->is_free = false;
}

// Unlinks and returns a free block of at least `granules`, or nullptr.
Heap::Block* Heap::take_fitting(uint64_t granules) {
  // Rounded up to the next class's smallest size, so that the first block of any class found is large enough.
  uint64_t rounded = granules;
  if (granules >= kSecondLevel) {
    const int step = std::bit_width(granules) - 1 - kSecondLevelBits;
    rounded += (uint64_t{1} << step) - 1;
  }
  SizeClass size = class_of(rounded);
  if (size.first >= kFirstLevel) {
    return nullptr;
  }
  uint32_t second = second_bits_[size.first] & (~0u << size.second);
  if (second == 0) {
    const uint64_t first = first_bits_ & (~uint64_t{0} << (size.first + 1));
    if (first == 0) {
      return nullptr;
    }
    size.first = std::countr_zero(first);
    second = second_bits_[size.first];
  }
  Block* const block = free_[size.first][std::countr_zero(second)];
  unlink_free(block);
  return block;
}

// Merges `block`'s right neighbour, which is in no list, into it.
void Heap::absorb_after(Block* block) {
  Block* const absorbed = block->after;
  block->bytes += absorbed->bytes;
  block->kept += absorbed->kept;
  block->after = absorbed->after;
  if (block->after != nullptr) {
    block->after->before = block;
  }
  delete absorbed;
}

// ---- the heap ----

Heap::Heap(uint64_t reserved, uint64_t limit) : limit_(limit) {
  link_free(new Block{.offset = 0, .bytes = reserved});
}

// A block of `bytes`, a multiple of the granule, that is in no list; nullptr if no free one is large enough.
// The bytes that the block keeps still count as kept.
Heap::Block* Heap::take(uint64_t bytes) {
  Block* const block = take_fitting(bytes / kGranule);
  if (block == nullptr || block->bytes == bytes) {
    return block;
  }
  Block* const rest = new Block{.offset = block->offset + bytes, .bytes = block->bytes - bytes};
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) {
    rest->after->before = rest;
  }
  rest->kept = block->kept - std::min(block->kept, bytes);
  block->kept -= rest->kept;
  block->after = rest;
  block->bytes = bytes;
  link_free(rest);
  return block;
}

// Makes a block free that is in no list, and one with free neighbours.
void Heap::put_back(Block* block) {
  if (block->after != nullptr && block->after->is_free) {
    unlink_free(block->after);
    absorb_after(block);
  }
  if (block->before != nullptr && block->before->is_free) {
    block = block->before;
    unlink_free(block);
    absorb_after(block);
  }
  link_free(block);
}

std::optional<uint64_t> Heap::allocate(uint64_t bytes) {
  if (bytes > limit_) {
    return std::nullopt;  // also keeps the rounding below from overflowing
  }
  const uint64_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  const std::lock_guard lock(mutex_);
  if (rounded > limit_ - statistics_.live_bytes) {
    return std::nullopt;
  }
  Block* const block = take(rounded);
  if (block == nullptr) {
    return std::nullopt;
  }
  statistics_.kept_bytes -= block->kept;
  block->kept = 0;
  live_.insert(block);
  ++statistics_.allocations;
  statistics_.live_bytes += rounded;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.live_bytes);
  return block->offset;
}

bool Heap::release(uint64_t offset, void (*give_back)(void*, uint64_t, uint64_t), void* context) {
  std::unique_lock lock(mutex_);
  Block* const block = live_.remove(offset);
  if (block == nullptr) {
    return false;
  }
  // See Note [Pages of released blocks]. Meanwhile the block is neither live nor free: nobody else can reach
  // it.
  if (block->bytes >= kLargeBlock && statistics_.kept_bytes + block->bytes > kMostKept) {
    lock.unlock();
    give_back(context, block->offset, block->bytes);
    lock.lock();
  } else {
    block->kept = block->bytes;
    statistics_.kept_bytes += block->bytes;
  }
  ++statistics_.releases;
  statistics_.live_bytes -= block->bytes;
  put_back(block);
  return true;
}

std::optional<uint64_t> Heap::live_bytes_at(uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const Block* const block = live_.find(offset);
  return block != nullptr ? std::optional(block->bytes) : std::nullopt;
}

Heap::Block* Heap::reserve(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return take((bytes + kGranule - 1) / kGranule * kGranule);
}

void Heap::give_up(Block* reserved) {
  const std::lock_guard lock(mutex_);
  put_back(reserved);
}

uint64_t Heap::offset_of(const Block* block) {
  return block->offset;
}

Heap::Statistics Heap::statistics() {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace sim
