// See faults.h; the exported functions are described in sim.h.
#include "faults.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "errors.h"
#include "memory.h"
#include "sim.h"

namespace sim::faults {
namespace {

// Calls of one kind that fail, after some that do not.
class Failures {
 public:
  // Of each such call.
  bool take() noexcept {
    return left_.load(std::memory_order_relaxed) > 0 && (++calls_, !count_down(spared_)) && count_down(left_);
  }
  void set(long after, long count) noexcept {
    spared_.store(after, std::memory_order_relaxed);
    calls_.store(0, std::memory_order_relaxed);
    left_.store(count, std::memory_order_relaxed);
  }
  // Since it was set, until the last that failed.
  long calls() const noexcept { return calls_.load(std::memory_order_relaxed); }

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

  std::atomic<long> left_{0};
  std::atomic<long> spared_{0};
  std::atomic<long> calls_{0};
};

constinit std::array<Failures, kEntries.size()> failures{};
constinit std::array<Failures, kMaxDevices> losses{};  // of which the first is taken by any call
constinit std::atomic<bool> any_injected{false};       // whether one of these two ever was
constinit std::atomic<uint32_t> lost_devices{0};       // bit i: device i
constinit std::atomic<long> slowness{0};

// Reads "" as 0 and ":12" as 12.
bool parse_spared(std::string_view text, long& after) noexcept {
  if (text.empty()) {
    return true;
  }
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + 1, end, after);
  return text.front() == ':' && read.ec == std::errc() && read.ptr == end && after >= 0;
}

struct Fault {
  Failures* failures;
  long after;
  int device = -1;  // that is lost
};

// `name`, or `name:N`; none where it is another.
std::optional<Fault> find(std::string_view fault) {
  const auto matches = [fault](std::string_view name, long& after) {
    return fault.substr(0, name.size()) == name && parse_spared(fault.substr(name.size()), after);
  };
  long after = 0;
  for (size_t entry = 0; entry < kEntries.size(); ++entry) {
    if (matches(kEntries[entry], after)) {
      return Fault{&failures[entry], after};
    }
  }
  for (int device = 0; device < kMaxDevices; ++device) {
    if (matches("device_lost:" + std::to_string(device), after)) {
      return Fault{&losses[static_cast<size_t>(device)], after, device};
    }
  }
  return std::nullopt;
}

void say_unknown(std::string_view fault) {
  std::string known;
  for (const std::string_view entry : kEntries) {
    known.append(entry).append(", ");
  }
  fail(OPSMITH_INVALID_ARGUMENT,
       "unknown fault '%.*s'; the faults are: %sdevice_lost:D (D from 0 to %d), each also with :N, after N "
       "calls, "
       "and slow",
       static_cast<int>(fault.size()), fault.data(), known.c_str(), kMaxDevices - 1);
}

int inject(std::string_view fault, long count) {
  if (fault == "slow") {
    slowness.store(count, std::memory_order_relaxed);
    return 0;
  }
  const std::optional<Fault> found = find(fault);
  if (!found.has_value()) {
    say_unknown(fault);
    return 1;
  }
  if (found->device >= 0 && found->after == 0) {
    lost_devices.fetch_or(1u << found->device, std::memory_order_relaxed);
    return 0;
  }
  found->failures->set(found->after, count);
  any_injected.store(true, std::memory_order_relaxed);
  return 0;
}

}  // namespace

bool take(size_t entry) noexcept {
  if (!any_injected.load(std::memory_order_relaxed)) {
    return false;
  }
  for (size_t device = 0; device < losses.size(); ++device) {
    if (losses[device].take()) {
      lost_devices.fetch_or(1u << device, std::memory_order_relaxed);
    }
  }
  return failures[entry].take();
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

__attribute__((visibility("default"))) long opsmith_sim_injected_calls(const char* fault) {
  const auto found = sim::faults::find(fault != nullptr ? fault : "");
  return found.has_value() ? found->failures->calls() : -1;
}

__attribute__((visibility("default"))) void opsmith_sim_clear_faults(void) {
  using namespace sim::faults;
  any_injected.store(false, std::memory_order_relaxed);
  for (Failures& each : failures) {
    each.set(0, 0);
  }
  for (Failures& each : losses) {
    each.set(0, 0);
  }
  slowness.store(0, std::memory_order_relaxed);
  lost_devices.store(0, std::memory_order_relaxed);
}

}  // extern "C"
