// See faults.h.
#include "faults.h"

#include <opsmith_compute.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>

#include "definitions.h"

namespace opsmith::compute {

const void* faults() {
  const c10::DeviceIndex device = current_device();
  const void* address = nullptr;
  check(opsmith_compute_faults(current_stream(device), &address), "prepare a kernel that may find a mistake",
        device);
  return address;
}

const std::string& fault_definitions() {
  static const std::string text = definition("FAULT_INDEX", static_cast<int>(OPSMITH_COMPUTE_FAULT_INDEX)) +
                                  definition("FAULT_TARGET", static_cast<int>(OPSMITH_COMPUTE_FAULT_TARGET));
  return text;
}

}  // namespace opsmith::compute
