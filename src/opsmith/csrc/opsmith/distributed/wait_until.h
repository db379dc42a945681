// Waiting for a condition.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace opsmith {

// condition_variable::wait() would make the library need a newer libstdc++ than PyTorch's.
template <class Condition>
void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                const Condition& is_reached) {
  while (!changed.wait_for(lock, std::chrono::hours(1), is_reached)) {
  }
}

}  // namespace opsmith
