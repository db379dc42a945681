// Where the host finds a Tensor's elements: on a device behind the driver's window; on the CPU, for libraries
// of operators without a device (OPSMITH_FOR_CPU), where they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#ifdef OPSMITH_FOR_CPU

namespace opsmith {

inline void* host_pointer(const void* pointer) {
  return const_cast<void*>(pointer);
}

inline void wait_for_copies() {}

inline at::Tensor contiguous_in_order(const at::Tensor& tensor) {
  return tensor.contiguous();
}

inline c10::Device lean_device() {
  return c10::kCPU;
}

}  // namespace opsmith

#else

#include <opsmith/device/device.h>
#include <opsmith/host_access.h>
#include <opsmith/on_host.h>

namespace opsmith {

// Until what the bridge copied is where the host looks.
inline void wait_for_copies() {
  wait_for_device(current_device());
}

// Of the Tensors whose kernel is called.
inline c10::Device lean_device() {
  return {c10::kPrivateUse1, current_device()};
}

}  // namespace opsmith

#endif
