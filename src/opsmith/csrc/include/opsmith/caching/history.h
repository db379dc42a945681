// The history of an allocator, and the snapshot of its present.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <opsmith/caching/blocks.h>

namespace opsmith::caching {

// PyTorch's memory visualiser knows these by the names that action_name() gives.
enum class Action : uint8_t {
  kAllocate,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAllocate,
  kSegmentFree,
  kSnapshot,
  kOutOfMemory,
};

inline const char* action_name(Action action) {
  constexpr const char* kNames[] = {
      "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot", "oom"};
  return kNames[static_cast<size_t>(action)];
}

struct HistoryEntry {
  Action action;
  uintptr_t address;  // of kOutOfMemory: the bytes that the device has free
  size_t size;
  Stream stream;
  int64_t time_us;  // since 1970
  std::shared_ptr<void> context;
};

struct BlockSnapshot {
  uintptr_t address;
  size_t size;
  size_t requested;
  BlockState state;
  std::shared_ptr<void> context;
};

struct SegmentSnapshot {
  uintptr_t address;
  size_t size;
  Stream stream;
  PoolKind kind;
  PrivatePool private_pool;
  std::vector<BlockSnapshot> blocks;
  std::shared_ptr<void> context;
};

struct Snapshot {
  std::vector<SegmentSnapshot> segments;
  std::vector<HistoryEntry> history;  // oldest first
};

// The settings of a recording. `context` is called for each entry that is to have one, without a lock; its
// result is kept with the entry: a stack, say.
struct Recording {
  bool entries = false;  // else only the contexts of live blocks
  size_t most_entries = 0;
  std::function<std::shared_ptr<void>()> context;
};

// The youngest entries of a bounded history.
class History {
 public:
  void restart(size_t most_entries, bool clear) {
    if (clear || most_entries != most_) {
      entries_.clear();
      next_ = 0;
    }
    most_ = most_entries;
  }

  void add(HistoryEntry entry) {
    using namespace std::chrono;
    entry.time_us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    if (entries_.size() < most_) {
      entries_.push_back(std::move(entry));
    } else if (most_ > 0) {
      entries_[next_] = std::move(entry);
      next_ = (next_ + 1) % most_;
    }
  }

  std::vector<HistoryEntry> oldest_first() const {
    std::vector<HistoryEntry> ordered(entries_.begin() + static_cast<std::ptrdiff_t>(next_), entries_.end());
    ordered.insert(ordered.end(), entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(next_));
    return ordered;
  }

 private:
  std::vector<HistoryEntry> entries_;
  size_t most_ = 0;
  size_t next_ = 0;  // the oldest, once there are most_ of them
};

}  // namespace opsmith::caching
