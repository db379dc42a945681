// The driver of this process: the table of opsmith_driver.h, opened once, its failures as exceptions, and the
// stream for its work.
#pragma once

#include <opsmith_driver.h>

#include <atomic>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {
extern const opsmith_driver* loaded_driver;
[[noreturn]] void throw_no_driver();
extern std::atomic<bool> failure_is_kept;  // or a device is lost
void raise_kept_failure(c10::DeviceIndex device);
[[noreturn]] void throw_driver_failure(opsmith_status status, const char* action, c10::DeviceIndex device,
                                       bool of_earlier_work = false);
}  // namespace detail

// The loaded driver. Entries that opsmith_driver.h calls optional may be NULL.
inline const opsmith_driver& driver() {
  if (C10_UNLIKELY(detail::loaded_driver == nullptr)) {
    detail::throw_no_driver();
  }
  return *detail::loaded_driver;
}

// Turns a failed call into an exception, c10::OutOfMemoryError or c10::AcceleratorError, whose text says what
// `action` ("copy 4096 bytes") failed on which device for which operator, the driver's last_error() and a
// remedy. Once a device is lost, every later call on it throws what the first one threw, whatever the driver
// says of it.
inline void check(opsmith_status status, const char* action, c10::DeviceIndex device) {
  if (C10_UNLIKELY(status != OPSMITH_OK)) {
    detail::throw_driver_failure(status, action, device);
  }
  if (C10_UNLIKELY(detail::failure_is_kept.load(std::memory_order_relaxed))) {
    detail::raise_kept_failure(device);
  }
}

// The same for a wait, whose failure is that of work that was launched earlier.
inline void check_wait(opsmith_status status, const char* action, c10::DeviceIndex device) {
  if (C10_UNLIKELY(status != OPSMITH_OK)) {
    detail::throw_driver_failure(status, action, device, /*of_earlier_work=*/true);
  }
  check(status, action, device);
}

// The stream that is current for `device` in this thread, as the driver's handle.
opsmith_stream current_stream(c10::DeviceIndex device);

}  // namespace opsmith
