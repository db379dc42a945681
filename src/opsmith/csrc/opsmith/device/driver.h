// The loaded driver (opsmith/loaded_driver.h) as the runtime needs it: failures that are kept, the operator
// that errors name, its library.
#pragma once

#include <opsmith/device/device.h>
#include <opsmith/loaded_driver.h>

#include <string>

#include <c10/core/Device.h>

namespace opsmith {

namespace detail {
// Makes `driver`, a table of `library`, the loaded one. Called by load_driver().
void set_driver(const opsmith_driver& driver, void* library);

// stream_id(), which stream.cpp sets.
using StreamId = int64_t (*)(opsmith_stream stream, c10::DeviceIndex device);
inline constinit StreamId id_of_stream = nullptr;
}  // namespace detail

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

}  // namespace opsmith
