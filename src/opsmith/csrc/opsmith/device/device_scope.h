// Another current device for a while: what allocation needs, without the cost of a virtual device guard.
#pragma once

#include <opsmith/device/device.h>

namespace opsmith {

class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) : device_(device), previous_(current_device()) {
    if (C10_UNLIKELY(device_ != previous_)) {
      exchange_device(device);
    }
  }
  ~DeviceScope() {
    if (C10_UNLIKELY(device_ != previous_)) {
      exchange_device(previous_);
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  c10::DeviceIndex device() const { return device_; }

 private:
  c10::DeviceIndex device_;
  c10::DeviceIndex previous_;
};

}  // namespace opsmith
