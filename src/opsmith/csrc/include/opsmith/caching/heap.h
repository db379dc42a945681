// Segments cut into blocks: which free block serves a size, splitting, merging, and the counts. Knows of no
// device and of no lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <opsmith/caching/blocks.h>
#include <opsmith/caching/history.h>
#include <opsmith/caching/settings.h>
#include <opsmith/caching/statistics.h>

namespace opsmith::caching {

class Heap {
 public:
  using Segments = std::vector<std::unique_ptr<Segment>>;

  Heap(CachingAllocator& owner, const Settings& settings, size_t granule)
      : owner_(owner), settings_(settings), granule_(granule) {}

  Statistics statistics;

  // ---- sizes ----

  size_t rounded(size_t bytes) const { return (bytes + granule_ - 1) & ~(granule_ - 1); }

  // Of the segment that a block of `size` is cut from.
  size_t segment_size(size_t size) const {
    if (!settings_.cache) {
      return size;
    }
    if (size <= kMostSmall) {
      return std::max(kSmallSegment, granule_);
    }
    constexpr size_t kStep = kSmallSegment;
    return size < kLeastAlone ? std::max(kLargeSegment, granule_) : (size + kStep - 1) / kStep * kStep;
  }

  // ---- blocks ----

  // A free block of `stream` and `owner`, cut to `size` and counted as allocated; nullptr if none is large
  // enough.
  Block* take(size_t size, size_t requested, Stream stream, PrivatePool owner) {
    if (!settings_.cache) {
      return nullptr;
    }
    Block* const block = pool(stream, owner, kind_of(size)).find(size, most_for(size));
    if (block != nullptr) {
      remove_free(block);
      hand_out(block, size, requested);
    }
    return block;
  }

  // Memory that a user gave back is no longer the user's, whether or not it can be used again.
  void count_free(const Block& block) {
    const PoolKind kind = block.segment->kind;
    statistics.allocation.subtract(kind, 1);
    statistics.allocated_bytes.subtract(kind, static_cast<int64_t>(block.size));
    statistics.requested_bytes.subtract(kind, static_cast<int64_t>(block.requested));
    if (block.size >= settings_.max_split_size) {
      statistics.oversize_allocation.subtract(1);
    }
  }

  // The work on `block` is done: it is free, and one block with free neighbours.
  void put_back(Block* block) {
    end_use(block);
    if (Block* const before = block->previous; before != nullptr && before->state == BlockState::kFree) {
      remove_free(before);
      block->data = before->data;
      block->size += before->size;
      block->previous = before->previous;
      (before->previous != nullptr ? before->previous->next : block->segment->first) = block;
      blocks_.give_back(before);
    }
    if (Block* const after = block->next; after != nullptr && after->state == BlockState::kFree) {
      remove_free(after);
      block->size += after->size;
      block->next = after->next;
      if (after->next != nullptr) {
        after->next->previous = block;
      }
      blocks_.give_back(after);
    }
    insert_free(block);
    if (block->is_whole_segment()) {
      block->segment->last_use = tick_;
    }
  }

  // The block that `address` lies in, or nullptr. Walks the blocks of a segment.
  const Block* find(uintptr_t address) const {
    auto found = segments_.upper_bound(address);
    if (found == segments_.begin()) {
      return nullptr;
    }
    const Block* block = (--found)->second->first;
    while (block != nullptr && address_of(block->data) + block->size <= address) {
      block = block->next;
    }
    return block;
  }

  // ---- segments ----

  // Adds what the device gave, and takes a block of `size` from it.
  Block* add_segment(void* data, size_t bytes, size_t size, size_t requested, Stream stream,
                     PrivatePool owner) {
    const PoolKind kind = kind_of(size);
    auto segment = std::make_unique<Segment>(
        Segment{&owner_, static_cast<char*>(data), bytes, stream, kind, owner, &pool(stream, owner, kind)});
    Block* const block = blocks_.make();
    block->data = segment->data;
    block->size = bytes;
    block->segment = segment.get();
    block->previous = block->next = nullptr;
    segment->first = block;
    segments_.emplace(address_of(segment->data), std::move(segment));
    ++statistics.device_allocations;
    statistics.segment.add(kind, 1);
    statistics.reserved_bytes.add(kind, static_cast<int64_t>(bytes));
    if (bytes >= settings_.max_split_size) {
      statistics.oversize_segment.add(1);
    }
    hand_out(block, size, requested);
    return block;
  }

  // The memory of `owner` is everybody's from now on.
  void dissolve(PrivatePool owner) {
    for (const auto& [address, segment] : segments_) {
      if (segment->private_pool != owner) {
        continue;
      }
      FreeBlocks& common = pool(segment->stream, 0, segment->kind);
      for (Block* block = segment->first; block != nullptr; block = block->next) {
        if (block->state == BlockState::kFree) {
          segment->pool->remove(block);
          common.insert(block);
        }
      }
      segment->private_pool = 0;
      segment->pool = &common;
    }
    std::erase_if(pools_, [&](const auto& pools) { return pools->owner == owner; });
  }

  // The segments that are wholly free and everybody's, those first that were used last the longest ago, until
  // they make `bytes`.
  Segments take_free_segments(size_t bytes) {
    std::vector<Segment*> free_ones;
    for (const auto& [address, segment] : segments_) {
      if (segment->private_pool == 0 && segment->first->is_whole_segment() &&
          segment->first->state == BlockState::kFree) {
        free_ones.push_back(segment.get());
      }
    }
    std::sort(free_ones.begin(), free_ones.end(),
              [](const Segment* a, const Segment* b) { return a->last_use < b->last_use; });
    Segments taken;
    for (Segment* const segment : free_ones) {
      if (bytes == 0) {
        break;
      }
      bytes -= std::min(bytes, segment->size);
      remove_free(segment->first);
      taken.push_back(take_segment(segment));
    }
    return taken;
  }

  // The segment of `block`, which is all of it and whose work is done.
  std::unique_ptr<Segment> take_segment_of(Block* block) {
    end_use(block);
    return take_segment(block->segment);
  }

  // A segment that was taken is the device's again.
  void count_release(const Segment& segment) {
    ++statistics.device_releases;
    statistics.segment.subtract(segment.kind, 1);
    statistics.reserved_bytes.subtract(segment.kind, static_cast<int64_t>(segment.size));
    if (segment.size >= settings_.max_split_size) {
      statistics.oversize_segment.subtract(1);
    }
  }

  std::vector<SegmentSnapshot> snapshot() const {
    std::vector<SegmentSnapshot> taken;
    for (const auto& [address, segment] : segments_) {
      SegmentSnapshot& made = taken.emplace_back(SegmentSnapshot{address,
                                                                 segment->size,
                                                                 segment->stream,
                                                                 segment->kind,
                                                                 segment->private_pool,
                                                                 {},
                                                                 segment->context});
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        made.blocks.push_back(
            {address_of(block->data), block->size, block->requested, block->state, block->context});
      }
    }
    return taken;
  }

 private:
  struct Pools {
    Stream stream;
    PrivatePool owner;
    std::array<FreeBlocks, 2> of_kind;  // by PoolKind
  };

  static uintptr_t address_of(const char* data) { return reinterpret_cast<uintptr_t>(data); }

  static PoolKind kind_of(size_t size) { return size <= kMostSmall ? PoolKind::kSmall : PoolKind::kLarge; }

  // The largest block that may serve a size: large blocks are kept for large sizes.
  size_t most_for(size_t size) const {
    return size < settings_.max_split_size ? settings_.max_split_size - 1 : size + kLargeSegment;
  }

  bool should_split(const Block& block, size_t size) const {
    const size_t rest = block.size - size;
    return block.segment->kind == PoolKind::kSmall ? rest >= granule_
                                                   : rest > kMostSmall && size < settings_.max_split_size;
  }

  FreeBlocks& pool(Stream stream, PrivatePool owner, PoolKind kind) {
    for (const auto& pools : pools_) {
      if (pools->stream == stream && pools->owner == owner) {
        return pools->of_kind[static_cast<size_t>(kind)];
      }
    }
    pools_.push_back(
        std::make_unique<Pools>(Pools{stream, owner, {FreeBlocks(granule_), FreeBlocks(granule_)}}));
    return pools_.back()->of_kind[static_cast<size_t>(kind)];
  }

  void insert_free(Block* block) {
    block->segment->pool->insert(block);
    if (!block->is_whole_segment()) {
      statistics.inactive_split.add(block->segment->kind, 1);
      statistics.inactive_split_bytes.add(block->segment->kind, static_cast<int64_t>(block->size));
    }
  }

  void remove_free(Block* block) {
    block->segment->pool->remove(block);
    if (!block->is_whole_segment()) {
      statistics.inactive_split.subtract(block->segment->kind, 1);
      statistics.inactive_split_bytes.subtract(block->segment->kind, static_cast<int64_t>(block->size));
    }
  }

  // `block` is in no pool.
  void hand_out(Block* block, size_t size, size_t requested) {
    if (should_split(*block, size)) {
      split(block, size);
    }
    block->state = BlockState::kAllocated;
    block->requested = requested;
    const PoolKind kind = block->segment->kind;
    const auto bytes = static_cast<int64_t>(block->size);
    statistics.allocation.add(kind, 1);
    statistics.allocated_bytes.add(kind, bytes);
    statistics.active.add(kind, 1);
    statistics.active_bytes.add(kind, bytes);
    statistics.requested_bytes.add(kind, static_cast<int64_t>(requested));
    if (block->size >= settings_.max_split_size) {
      statistics.oversize_allocation.add(1);
    }
    ++tick_;
  }

  // Leaves the first `size` bytes to `block`; the rest is free.
  void split(Block* block, size_t size) {
    Block* const rest = blocks_.make();
    rest->data = block->data + size;
    rest->size = block->size - size;
    rest->segment = block->segment;
    rest->state = BlockState::kFree;
    rest->previous = block;
    rest->next = block->next;
    if (block->next != nullptr) {
      block->next->previous = rest;
    }
    block->next = rest;
    block->size = size;
    insert_free(rest);
  }

  void end_use(Block* block) {
    statistics.active.subtract(block->segment->kind, 1);
    statistics.active_bytes.subtract(block->segment->kind, static_cast<int64_t>(block->size));
    block->other_streams.clear();
    block->context.reset();
    block->requested = 0;
    block->state = BlockState::kFree;
  }

  // Its one block is in no pool.
  std::unique_ptr<Segment> take_segment(Segment* segment) {
    blocks_.give_back(segment->first);
    const auto found = segments_.find(address_of(segment->data));
    std::unique_ptr<Segment> taken = std::move(found->second);
    segments_.erase(found);
    return taken;
  }

  CachingAllocator& owner_;
  const Settings& settings_;
  size_t granule_;
  uint64_t tick_ = 0;  // allocations
  BlockStore blocks_;
  std::vector<std::unique_ptr<Pools>> pools_;
  std::map<uintptr_t, std::unique_ptr<Segment>> segments_;
};

}  // namespace opsmith::caching
