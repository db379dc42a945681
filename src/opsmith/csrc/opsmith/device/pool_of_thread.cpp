// See pool_of_thread.h.
#include <opsmith/device/pool_of_thread.h>

#include <atomic>
#include <map>

#include <c10/macros/Macros.h>

namespace opsmith {

namespace {

thread_local std::map<c10::DeviceIndex, uint64_t> pools_of_thread;
// Of all threads, so that an allocation asks for nothing more where there are none.
std::atomic<int> chosen_pools{0};

}  // namespace

uint64_t pool_of_thread(c10::DeviceIndex device) noexcept {
  if (C10_LIKELY(chosen_pools.load(std::memory_order_relaxed) == 0)) {
    return 0;
  }
  const auto found = pools_of_thread.find(device);
  return found == pools_of_thread.end() ? 0 : found->second;
}

uint64_t exchange_pool_of_thread(c10::DeviceIndex device, uint64_t pool) {
  const uint64_t before = pool_of_thread(device);
  if (pool == 0) {
    pools_of_thread.erase(device);
  } else {
    pools_of_thread[device] = pool;
  }
  chosen_pools += static_cast<int>(pool != 0) - static_cast<int>(before != 0);
  return before;
}

}  // namespace opsmith
