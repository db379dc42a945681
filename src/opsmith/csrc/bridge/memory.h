// Where the host finds a Tensor's elements: on a device behind the driver's window; on the CPU, for libraries
// of operators without a device (OPSMITH_FOR_CPU), where they are.
#pragma once

#ifdef OPSMITH_FOR_CPU

namespace opsmith {

inline void* host_pointer(const void* pointer) {
  return const_cast<void*>(pointer);
}

inline void wait_for_copies() {}

}  // namespace opsmith

#else

#include <opsmith/device/device.h>
#include <opsmith/host_access.h>

namespace opsmith {

// Until what the bridge copied is where the host looks.
inline void wait_for_copies() {
  wait_for_device(current_device());
}

}  // namespace opsmith

#endif
