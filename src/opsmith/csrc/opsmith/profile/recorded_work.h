// The device's work as torch.profiler shows it: recorded while a profiler of PrivateUse1 runs; kineto.cpp
// says when, and reads what was recorded.
#pragma once

#include <opsmith/device/device_work.h>

#include <cstdint>
#include <string>
#include <vector>

namespace opsmith::profile {

// Which operator and which range of the program this thread is in, by the profiler's numbers.
enum class Scope : uint8_t { kOperator, kRange };
void enter(Scope scope, uint64_t number);
void leave(Scope scope) noexcept;

// A piece of work, in nanoseconds since the epoch.
struct Event {
  std::string name;
  Kind kind;
  c10::DeviceIndex device;
  int64_t stream;
  uint64_t called_by;  // the number of the operator that launched it; 0: none that is profiled
  uint64_t range;      // likewise of the innermost range
  int32_t thread;      // that launched it, as the operating system numbers it
  int64_t launched;
  int64_t start;
  int64_t end;
  uint64_t bytes;
};

// Starts to record, without what was recorded before.
void start_recording();

// Waits for the devices that had work, and stops. Afterwards recorded() gives everything that was launched
// between, by time. What could not be timed is left out and `problems` says why.
void stop_recording();
std::vector<Event> recorded(std::vector<std::string>& problems);

}  // namespace opsmith::profile
