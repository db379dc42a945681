// A moment of a device's stream, for taking the time between two of them: an event of the driver. Without
// events in the driver, the host waits for the stream and looks at its clock.
#pragma once

#include <opsmith_driver.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include <c10/core/Device.h>
#include <c10/util/ApproximateClock.h>

namespace opsmith::profile {

class Moment {
 public:
  // When this thread's current stream of `device` has done what is queued there now. Throws what the driver's
  // failures are.
  explicit Moment(c10::DeviceIndex device);

  // Microseconds from this to `later`, for which it waits; between two devices, as the host saw it.
  double until(const Moment& later) const;

  void wait() const;

  c10::DeviceIndex device() const { return device_; }

  // When the host queued it.
  int64_t host_ns() const { return host_ns_; }

 private:
  struct Destroy {
    void operator()(opsmith_event event) const noexcept;
  };

  c10::DeviceIndex device_;
  std::unique_ptr<std::remove_pointer_t<opsmith_event>, Destroy> event_;
  int64_t host_ns_ = 0;
};

}  // namespace opsmith::profile
