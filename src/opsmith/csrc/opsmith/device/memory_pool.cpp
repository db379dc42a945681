// See memory_pool.h.
#include <opsmith/device/memory_pool.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

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

}  // namespace opsmith
