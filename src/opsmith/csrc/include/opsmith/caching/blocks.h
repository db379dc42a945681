// Segments, which are the device's allocations, the blocks that they are cut into, and free blocks by size.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <opsmith/caching/device_memory.h>
#include <opsmith/caching/statistics.h>

namespace opsmith::caching {

class CachingAllocator;
class FreeBlocks;
struct Segment;

enum class BlockState : uint8_t {
  kFree,  // in its pool's FreeBlocks
  kAllocated,
  kAwaiting,  // given back, but streams have work on it, or it is in quarantine
};

// A number of the caller's for memory that serves nothing else; 0 is everybody's.
using PrivatePool = uint64_t;

struct Block {
  char* data = nullptr;
  size_t size = 0;
  size_t requested = 0;
  Segment* segment = nullptr;
  BlockState state = BlockState::kFree;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* previous_free = nullptr;  // in a bin of FreeBlocks
  Block* next_free = nullptr;
  std::vector<Stream> other_streams;  // from record_stream()
  std::shared_ptr<void> context;      // of its allocation, while a history is recorded

  bool is_whole_segment() const { return previous == nullptr && next == nullptr; }
};

// The state of a block at some time.
struct BlockView {
  const char* start;
  size_t requested;
  Stream stream;  // of its allocation
  bool is_allocated;
};

struct Segment {
  CachingAllocator* owner;
  char* data;
  size_t size;
  Stream stream;  // of all blocks' allocations
  PoolKind kind;
  PrivatePool private_pool;
  FreeBlocks* pool;
  Block* first = nullptr;
  uint64_t last_use = 0;               // the allocation after which all of it was free
  std::shared_ptr<void> context = {};  // as a block's
};

// The free blocks of a stream, in bins of sizes: 16 between two powers of two. The first bin that has a block
// large enough has the best fit; the youngest of a size comes first, since the caches know it best.
class FreeBlocks {
 public:
  explicit FreeBlocks(size_t granule) : shift_(std::countr_zero(granule)) {}

  void insert(Block* block) {
    const size_t bin = bin_of(block->size);
    block->previous_free = nullptr;
    block->next_free = bins_[bin];
    if (bins_[bin] != nullptr) {
      bins_[bin]->previous_free = block;
    }
    bins_[bin] = block;
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
  }

  void remove(Block* block) {
    if (block->next_free != nullptr) {
      block->next_free->previous_free = block->previous_free;
    }
    if (block->previous_free != nullptr) {
      block->previous_free->next_free = block->next_free;
      return;
    }
    const size_t bin = bin_of(block->size);
    bins_[bin] = block->next_free;
    if (bins_[bin] == nullptr) {
      used_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    }
  }

  // The smallest block of `size` to `most` bytes, or nullptr.
  Block* find(size_t size, size_t most) const {
    for (size_t bin = next_used(bin_of(size)); bin < kBins; bin = next_used(bin + 1)) {
      if (Block* const best = smallest(bin, size)) {
        return best->size <= most ? best : nullptr;
      }
    }
    return nullptr;
  }

 private:
  static constexpr size_t kSteps = 16;
  static constexpr size_t kBins = kSteps * 48;

  size_t bin_of(size_t size) const {
    const size_t units = size >> shift_;
    if (units < kSteps) {
      return units;
    }
    const auto power = static_cast<size_t>(std::bit_width(units)) - std::bit_width(kSteps);
    return power * kSteps + (units >> power);
  }

  size_t next_used(size_t bin) const {
    size_t word = bin / 64;
    if (word == used_.size()) {
      return kBins;
    }
    uint64_t bits = used_[word] & (~uint64_t{0} << (bin % 64));
    while (bits == 0) {
      if (++word == used_.size()) {
        return kBins;
      }
      bits = used_[word];
    }
    return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }

  Block* smallest(size_t bin, size_t size) const {
    Block* best = nullptr;
    for (Block* block = bins_[bin]; block != nullptr; block = block->next_free) {
      if (block->size == size) {
        return block;
      }
      if (block->size > size && (best == nullptr || block->size < best->size)) {
        best = block;
      }
    }
    return best;
  }

  int shift_;
  std::array<Block*, kBins> bins_{};
  std::array<uint64_t, kBins / 64> used_{};  // a bit for each bin that is not empty
};

// Blocks' own memory: kept for the next ones, since splitting and merging make and drop many.
class BlockStore {
 public:
  Block* make() {
    if (spare_.empty()) {
      blocks_.emplace_back();
      spare_.reserve(blocks_.size());  // so that give_back() cannot fail
      return &blocks_.back();
    }
    Block* const block = spare_.back();
    spare_.pop_back();
    return block;
  }

  void give_back(Block* block) noexcept { spare_.push_back(block); }

 private:
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
};

}  // namespace opsmith::caching
