// A number that one thread adds to, without a locked instruction, and that others may read meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

namespace opsmith {

class OwnedCounter {
 public:
  void add(int64_t amount) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  int64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

}  // namespace opsmith
