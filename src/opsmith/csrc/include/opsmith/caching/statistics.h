// The statistics of an allocator, counted as torch.cuda.memory_stats() does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace opsmith::caching {

struct Count {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;  // all that was added since the process began, or since it was reset
  int64_t freed = 0;

  void add(int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void subtract(int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

// Small blocks and large ones are cut from different segments.
enum class PoolKind : uint8_t { kSmall, kLarge };

struct PoolCounts {
  Count all;
  std::array<Count, 2> of_kind;  // by PoolKind

  void add(PoolKind kind, int64_t amount) {
    all.add(amount);
    of_kind[static_cast<size_t>(kind)].add(amount);
  }
  void subtract(PoolKind kind, int64_t amount) {
    all.subtract(amount);
    of_kind[static_cast<size_t>(kind)].subtract(amount);
  }
};

struct Statistics {
  // How many, and how many bytes.
  PoolCounts allocation, allocated_bytes;           // given to users
  PoolCounts active, active_bytes;                  // these, and those given back whose work is not done
  PoolCounts segment, reserved_bytes;               // taken from the device
  PoolCounts inactive_split, inactive_split_bytes;  // free parts of segments of which other parts are in use
  PoolCounts requested_bytes;                       // before sizes were rounded up
  Count oversize_allocation, oversize_segment;      // beyond max_split_size
  int64_t retries = 0;                              // the cache was released to make room
  int64_t out_of_memory = 0;                        // and there was none
  int64_t synchronizations = 0;                     // waits for blocks that were given back too early
  int64_t device_allocations = 0;
  int64_t device_releases = 0;

  template <class Function>
  void for_each_count(Function&& function) {
    for (PoolCounts* const counts :
         {&allocation, &allocated_bytes, &active, &active_bytes, &segment, &reserved_bytes, &inactive_split,
          &inactive_split_bytes, &requested_bytes}) {
      function(counts->all);
      function(counts->of_kind[0]);
      function(counts->of_kind[1]);
    }
    function(oversize_allocation);
    function(oversize_segment);
  }

  void reset_peaks() {
    for_each_count([](Count& count) { count.peak = count.current; });
  }

  void reset_accumulated() {
    for_each_count([](Count& count) { count.allocated = count.freed = 0; });
    retries = out_of_memory = synchronizations = device_allocations = device_releases = 0;
  }
};

}  // namespace opsmith::caching
