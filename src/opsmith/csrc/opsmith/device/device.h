// Which devices there are and which one is current in this thread.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace opsmith {

// The most devices of one driver that opsmith can address.
constexpr int kMostDevices = 64;

// 0 until a driver is loaded.
c10::DeviceIndex device_count() noexcept;
c10::DeviceIndex current_device() noexcept;

// Throws when `device` is out of range, naming the range. -1 stands for the current device.
c10::DeviceIndex checked_device(c10::DeviceIndex device);

// Makes `device` current in this thread and returns the one that was.
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// The name of the device in PyTorch, e.g. "sim".
std::string device_type_name();

namespace detail {
// Called by load_driver().
void set_device_count(c10::DeviceIndex count);
}  // namespace detail

}  // namespace opsmith
