// See pinned.h.
#include "pinned.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

namespace sim::pinned {
namespace {

constexpr size_t kPage = 4096;

struct Registry {
  std::shared_mutex mutex;
  std::map<uintptr_t, uintptr_t> ranges;  // start -> end
  std::atomic<size_t> count{0};
};

Registry& registry() {
  static Registry* const instance =
      new Registry;  // never destroyed: streams may still ask while the process ends
  return *instance;
}

}  // namespace

void* allocate(size_t bytes) {
  if (bytes > SIZE_MAX - kPage) {
    throw std::bad_alloc();
  }
  void* const pointer = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (pointer == nullptr) {
    throw std::bad_alloc();
  }
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  const auto start = reinterpret_cast<uintptr_t>(pointer);
  all.ranges.emplace(start, start + bytes);
  all.count.store(all.ranges.size(), std::memory_order_release);
  return pointer;
}

bool release(void* pointer) {
  Registry& all = registry();
  {
    const std::unique_lock lock(all.mutex);
    if (all.ranges.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) {
      return false;
    }
    all.count.store(all.ranges.size(), std::memory_order_release);
  }
  std::free(pointer);
  return true;
}

bool contains(const void* pointer) {
  Registry& all = registry();
  if (all.count.load(std::memory_order_acquire) == 0) {
    return false;
  }
  const std::shared_lock lock(all.mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto range = all.ranges.upper_bound(address);
  return range != all.ranges.begin() && address < std::prev(range)->second;
}

size_t live_allocations() {
  return registry().count.load(std::memory_order_acquire);
}

}  // namespace sim::pinned
