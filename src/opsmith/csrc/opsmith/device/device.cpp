// The devices' number and the thread's current one. The guard and the hooks, which PyTorch asks, stand on
// these.
#include <opsmith/device/device.h>

#include <opsmith/loaded_driver.h>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

namespace {

// Set once, by load_driver(); kept after a fork, so that the child's error is about the fork and not about
// indices.
c10::DeviceIndex known_devices = 0;

constinit thread_local c10::DeviceIndex current = 0;

[[noreturn]] void throw_out_of_range(c10::DeviceIndex device) {
  const std::string name = device_type_name();
  if (known_devices == 0) {
    driver();  // says so if the reason is that no driver is loaded
    TORCH_CHECK(false, name, ":", static_cast<int>(device), " does not exist: the driver found no device");
  }
  const std::string others = known_devices == 1
                                 ? c10::str("the only device is ", name, ":0")
                                 : c10::str("there are ", static_cast<int>(known_devices), " devices, ", name,
                                            ":0 to ", name, ":", known_devices - 1);
  TORCH_CHECK(false, name, ":", static_cast<int>(device), " does not exist: ", others);
}

}  // namespace

namespace detail {
void set_device_count(c10::DeviceIndex count) {
  known_devices = count;
}
}  // namespace detail

std::string device_type_name() {
  return c10::get_privateuse1_backend();
}

c10::DeviceIndex device_count() noexcept {
  return known_devices;
}

c10::DeviceIndex current_device() noexcept {
  return current;
}

c10::DeviceIndex checked_device(c10::DeviceIndex device) {
  if (device == -1) {
    device = current;
  }
  if (C10_UNLIKELY(device < 0 || device >= known_devices)) {
    throw_out_of_range(device);
  }
  return device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = current;
  if (C10_UNLIKELY(device != previous)) {
    current = checked_device(device);
  }
  return previous;
}

}  // namespace opsmith
