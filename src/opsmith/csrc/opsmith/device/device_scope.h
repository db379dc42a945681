// Another current device for a while: what allocation needs, without the cost of a virtual device guard.
#pragma once

#include <opsmith/device/device.h>

namespace opsmith {

class DeviceScope {
 public:
  explicit DeviceScope(c10::DeviceIndex device) : previous_(current_device()), changed_(device != previous_) {
    if (C10_UNLIKELY(changed_)) {
      exchange_device(device);
    }
  }
  ~DeviceScope() {
    if (C10_UNLIKELY(changed_)) {
      exchange_device(previous_);
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::DeviceIndex previous_;
  bool changed_;
};

}  // namespace opsmith
