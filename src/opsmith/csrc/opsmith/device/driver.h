// The driver of this process: the table of opsmith_driver.h, opened once, and its failures as exceptions.
#pragma once

#include <opsmith_driver.h>

#include <atomic>
#include <string>

#include <c10/core/Device.h>

namespace opsmith {

// Opens the driver library at `path` and checks its ABI version. `use_host_window` false hides the driver's
// host window, so that everything works on copies (the description's `host_window: off`).
// Throws c10::Error with the reason and the remedy. Called once, before anything else in this namespace.
void load_driver(const std::string& path, bool use_host_window);

namespace detail {
extern const opsmith_driver* loaded_driver;
extern std::atomic<bool> failure_is_kept;
[[noreturn]] void throw_kept_failure();
[[noreturn]] void throw_no_driver();
[[noreturn]] void throw_driver_failure(opsmith_status status, const char* action, c10::DeviceIndex device);
}  // namespace detail

// The loaded driver. Entries that opsmith_driver.h calls optional may be NULL.
inline const opsmith_driver& driver() {
  if (C10_UNLIKELY(detail::loaded_driver == nullptr)) {
    detail::throw_no_driver();
  }
  return *detail::loaded_driver;
}

// Turns a failed call into an exception: c10::OutOfMemoryError or c10::AcceleratorError-like c10::Error whose
// text says what `action` ("copy 4096 bytes") failed on which device, the driver's last_error() and a remedy.
inline void check(opsmith_status status, const char* action, c10::DeviceIndex device) {
  if (C10_UNLIKELY(status != OPSMITH_OK)) {
    detail::throw_driver_failure(status, action, device);
  }
  if (C10_UNLIKELY(detail::failure_is_kept.load(std::memory_order_relaxed))) {
    detail::throw_kept_failure();
  }
}

// For a failure that cannot be raised where it is met, since memory is being released there: the next check()
// raises it.
void keep_failure(opsmith_status status, c10::DeviceIndex device) noexcept;
void keep_failure(opsmith_status status, std::string text) noexcept;

// Whether this process is a fork of one that had loaded its driver: then the device cannot be used here.
bool is_in_bad_fork();

// The name of the device in PyTorch, e.g. "sim".
std::string device_type_name();

}  // namespace opsmith
