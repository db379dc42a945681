// See faults.h; the exported functions are described in sim.h.
#include "faults.h"

#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "errors.h"
#include "memory.h"
#include "sim.h"

namespace sim::faults {
namespace {

// Calls of one kind that fail, after some that do not.
struct Failures {
  std::atomic<long> left{0};
  std::atomic<long> spared{0};

  bool take() noexcept {
    return left.load(std::memory_order_relaxed) > 0 && !count_down(spared) && count_down(left);
  }
  void set(long after, long count) noexcept {
    spared.store(after, std::memory_order_relaxed);
    left.store(count, std::memory_order_relaxed);
  }

 private:
  // Whether there was one to take.
  static bool count_down(std::atomic<long>& number) noexcept {
    long now = number.load(std::memory_order_relaxed);
    while (now > 0) {
      if (number.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
};

constinit Failures allocate_failures;
constinit Failures copy_failures;
constinit Failures fill_failures;
constinit std::atomic<long> slowness{0};
constinit std::atomic<uint32_t> lost_devices{0};  // bit i: device i

struct CountedFault {
  std::string_view name;
  Failures* failures;
};

constexpr CountedFault kCountedFaults[] = {
    {"allocate", &allocate_failures},
    {"copy", &copy_failures},
    {"fill", &fill_failures},
};

// Reads "" as 0 and ":12" as 12.
bool parse_spared(std::string_view text, long& after) noexcept {
  if (text.empty()) {
    return true;
  }
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + 1, end, after);
  return text.front() == ':' && read.ec == std::errc() && read.ptr == end && after >= 0;
}

int inject(std::string_view fault, long count) noexcept {
  for (const CountedFault& counted : kCountedFaults) {
    long after = 0;
    if (fault.substr(0, counted.name.size()) == counted.name &&
        parse_spared(fault.substr(counted.name.size()), after)) {
      counted.failures->set(after, count);
      return 0;
    }
  }
  if (fault == "slow") {
    slowness.store(count, std::memory_order_relaxed);
    return 0;
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
       "unknown fault '%.*s'; the faults are: allocate, copy, fill (each also :N, after N that succeed), "
       "slow, device_lost:N (N from 0 to %d)",
       static_cast<int>(fault.size()), fault.data(), kMaxDevices - 1);
  return 1;
}

}  // namespace

bool take_allocate() noexcept {
  return allocate_failures.take();
}
bool take_copy() noexcept {
  return copy_failures.take();
}
bool take_fill() noexcept {
  return fill_failures.take();
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
    counted.failures->set(0, 0);
  }
  sim::faults::slowness.store(0, std::memory_order_relaxed);
  sim::faults::lost_devices.store(0, std::memory_order_relaxed);
}

}  // extern "C"
