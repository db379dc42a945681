// See faults.h; the exported functions are described in sim.h.
#include "faults.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "errors.h"
#include "memory.h"
#include "sim.h"

namespace sim::faults {
namespace {

constinit std::atomic<long> allocate_failures{0};
constinit std::atomic<long> copy_failures{0};
constinit std::atomic<long> fill_failures{0};
constinit std::atomic<long> slowness{0};
constinit std::atomic<uint32_t> lost_devices{0};  // bit i: device i

struct CountedFault {
  std::string_view name;
  std::atomic<long>* count;
};

constexpr CountedFault kCountedFaults[] = {
    {"allocate", &allocate_failures},
    {"copy", &copy_failures},
    {"fill", &fill_failures},
    {"slow", &slowness},
};

bool take(std::atomic<long>& failures) noexcept {
  long left = failures.load(std::memory_order_relaxed);
  while (left > 0) {
    if (failures.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

int inject(std::string_view fault, long count) noexcept {
  for (const CountedFault& counted : kCountedFaults) {
    if (fault == counted.name) {
      counted.count->store(count, std::memory_order_relaxed);
      return 0;
    }
  }
  constexpr std::string_view kDeviceLost = "device_lost:";
  if (fault.substr(0, kDeviceLost.size()) == kDeviceLost && fault.size() == kDeviceLost.size() + 1) {
    const int device = fault.back() - '0';
    if (device >= 0 && device < kMaxDevices) {
      lost_devices.fetch_or(1u << device, std::memory_order_relaxed);
      return 0;
    }
  }
  fail(OPSMITH_INVALID_ARGUMENT,
       "unknown fault '%.*s'; the faults are: allocate, copy, fill, slow, device_lost:N (N from 0 to %d)",
       static_cast<int>(fault.size()), fault.data(), kMaxDevices - 1);
  return 1;
}

}  // namespace

bool take_allocate() noexcept {
  return take(allocate_failures);
}
bool take_copy() noexcept {
  return take(copy_failures);
}
bool take_fill() noexcept {
  return take(fill_failures);
}

bool is_lost(int device) noexcept {
  const uint32_t lost = lost_devices.load(std::memory_order_relaxed);
  return lost != 0 && device >= 0 && ((lost >> device) & 1u) != 0;
}

long slow_microseconds() noexcept {
  return slowness.load(std::memory_order_relaxed);
}

}  // namespace sim::faults

extern "C" {

__attribute__((visibility("default"))) int opsmith_sim_inject(const char* fault, long count) {
  return sim::faults::inject(fault != nullptr ? fault : "", count);
}

__attribute__((visibility("default"))) void opsmith_sim_clear_faults(void) {
  for (const sim::faults::CountedFault& counted : sim::faults::kCountedFaults) {
    counted.count->store(0, std::memory_order_relaxed);
  }
  sim::faults::lost_devices.store(0, std::memory_order_relaxed);
}

}  // extern "C"
