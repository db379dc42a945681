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
extern std::atomic<bool> failure_is_kept;  // or a device is lost
void raise_kept_failure(c10::DeviceIndex device);
[[noreturn]] void throw_no_driver();
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

// The operator that this thread serves while this lives, for the text of errors. `name` and `overload` live
// longer.
class Serving {
 public:
  explicit Serving(const char* name, const char* overload = "") noexcept
      : name_(name), overload_(overload), outer_(innermost) {
    innermost = this;
  }
  ~Serving() { innermost = outer_; }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  // " for aten::add.Tensor"; empty outside of all.
  static std::string text();

 private:
  [[gnu::tls_model("initial-exec")]] static constinit thread_local const Serving* innermost;

  const char* name_;
  const char* overload_;
  const Serving* outer_;
};

// For a failure that cannot be raised where it is met, since memory is being released there: the next check()
// raises it.
void keep_failure(opsmith_status status, c10::DeviceIndex device) noexcept;
void keep_failure(opsmith_status status, std::string text) noexcept;

// Waits where a failure cannot be raised. What failed may be tried again, and memory may be in use until
// then.
template <class Wait>
void finish(const Wait& wait, c10::DeviceIndex device) noexcept {
  const opsmith_status status = wait();
  if (C10_LIKELY(status == OPSMITH_OK)) {
    return;
  }
  keep_failure(status, device);
  if (status == OPSMITH_FAILED) {
    wait();
  }
}

// Whether this process is a fork of one that had loaded its driver: then the device cannot be used here.
bool is_in_bad_fork();

// The symbol `name` of the driver's library; null where it exports none.
void* driver_symbol(const char* name);

// The name of the device in PyTorch, e.g. "sim".
std::string device_type_name();

}  // namespace opsmith
