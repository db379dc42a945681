// How the host waits for streams: as long as they take, or OPSMITH_SYNCHRONIZE_TIMEOUT seconds at most, after
// which an error tells what the stream was doing.
#pragma once

#include <opsmith_driver.h>

#include <opsmith/device/calling_line.h>
#include <opsmith/device/device.h>
#include <opsmith/device/launched_last.h>

#include <utility>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {
extern bool waits_are_limited;
void note_launch(const char* operator_name, c10::DeviceIndex device);
}  // namespace detail

// Heeds OPSMITH_SYNCHRONIZE_TIMEOUT. Throws c10::Error for a setting that is none. Called by load_driver().
void prepare_waiting();

// Whether a wait for a stream may end in an error though the stream goes on.
inline bool waits_are_limited() {
  return detail::waits_are_limited;
}

// Waits for what `stream`, of `device`, has pending. Throws what check() throws, with `action` ("copy a
// tensor"); AcceleratorError when the time is over.
void wait_for_stream(opsmith_stream stream, c10::DeviceIndex device, const char* action);

// The same for the place of `event` in its stream.
void wait_for_event(opsmith_event event, c10::DeviceIndex device, const char* action);

// Waits for the work that `stream`, of `device`, has pending; costs one query if it has none.
void synchronize_stream(opsmith_stream stream, c10::DeviceIndex device);

// The same before memory is released that the work may use. Nothing can be raised there: the next check()
// raises a failure.
void finish_stream(opsmith_stream stream, c10::DeviceIndex device) noexcept;

// While one lives, a stream is waited for whose event this thread cannot record. PyTorch's Future calls
// itself completed before it records its events: an error would reach nobody who waits for it already.
class WaitsForWantOfEvents {
 public:
  WaitsForWantOfEvents() : previous_(std::exchange(is_on, true)) {}
  ~WaitsForWantOfEvents() { is_on = previous_; }
  WaitsForWantOfEvents(const WaitsForWantOfEvents&) = delete;
  WaitsForWantOfEvents& operator=(const WaitsForWantOfEvents&) = delete;

  static thread_local bool is_on;

 private:
  bool previous_;
};

// Synchronises every stream of `device` that opsmith has handed out.
void synchronize_device(c10::DeviceIndex device);

// The same before memory is released that any of them may use; as finish_stream().
void finish_device(c10::DeviceIndex device) noexcept;

// For the errors of waits: `operator_name`, which lives as long as the process, has launched a kernel on the
// current stream, of `device`.
inline void note_launch(const char* operator_name, c10::DeviceIndex device) {
  detail::launched_last[device].store(operator_name, std::memory_order_relaxed);
  if (C10_UNLIKELY(waits_are_limited())) {
    detail::note_launch(operator_name, device);
  }
}

// The operator noted last has launched nothing, or its kernel is done: no error is to name it.
inline void forget_launch(c10::DeviceIndex device) {
  detail::launched_last[device].store(nullptr, std::memory_order_relaxed);
}

// While it lives, `stream` runs the kernel of `operator_name` on the host, called at `line`.
class NotedRun {
 public:
  NotedRun(opsmith_stream stream, const char* operator_name, const CallingLine& line);
  ~NotedRun();
  NotedRun(const NotedRun&) = delete;
  NotedRun& operator=(const NotedRun&) = delete;

 private:
  opsmith_stream stream_;
};

}  // namespace opsmith
