// See memory_pool.h.
#include <opsmith/device/memory_pool.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <c10/macros/Macros.h>

#include <opsmith/device/allocator.h>

namespace opsmith {

namespace {

using PoolOfDevice = std::pair<c10::DeviceIndex, uint64_t>;

struct Holders {
  std::mutex mutex;
  std::map<PoolOfDevice, int64_t> counts;
};

Holders& holders() {
  static auto* const made = new Holders;  // never destroyed: graphs may outlive it
  return *made;
}

thread_local std::map<c10::DeviceIndex, uint64_t> pools_of_thread;
// Of all threads, so that an allocation asks for nothing more where there are none.
std::atomic<int> chosen_pools{0};

}  // namespace

uint64_t new_pool() {
  static std::atomic<uint64_t> pools{0};
  return ++pools;
}

void hold_pool(c10::DeviceIndex device, uint64_t pool) {
  const std::lock_guard lock(holders().mutex);
  ++holders().counts[{device, pool}];
}

void release_pool(c10::DeviceIndex device, uint64_t pool) noexcept {
  {
    const std::lock_guard lock(holders().mutex);
    const auto found = holders().counts.find({device, pool});
    if (--found->second > 0) {
      return;
    }
    holders().counts.erase(found);
  }
  device_cache(device).dissolve(pool);
}

int64_t pool_holders(c10::DeviceIndex device, uint64_t pool) {
  const std::lock_guard lock(holders().mutex);
  const auto found = holders().counts.find({device, pool});
  return found == holders().counts.end() ? 0 : found->second;
}

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
