// See faults.h.
#include "faults.h"

#include <opsmith_compute.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>

namespace opsmith::compute {

const void* faults() {
  const c10::DeviceIndex device = current_device();
  const void* address = nullptr;
  check(opsmith_compute_faults(current_stream(device), &address), "prepare a kernel that may find a mistake",
        device);
  return address;
}

std::string fault_definitions() {
  return "#define FAULT_INDEX " + std::to_string(OPSMITH_COMPUTE_FAULT_INDEX) + "\n#define FAULT_TARGET " +
         std::to_string(OPSMITH_COMPUTE_FAULT_TARGET) + "\n";
}

}  // namespace opsmith::compute
