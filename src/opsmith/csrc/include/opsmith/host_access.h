// Host code on device memory: for host-side kernels, copies and the fallback, through the driver's host
// window.
//
// A device address must never be dereferenced by the host (on sim it is PROT_NONE: the process dies). The
// window gives the address at which the host sees the same bytes; wait_for_device() says when they are up to
// date.
#pragma once

#include <opsmith/loaded_driver.h>

#include <type_traits>

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>

namespace opsmith {

// Whether the driver has a host window and the description allows its use.
inline bool has_host_window() {
  return driver().host_window != nullptr;
}

// Waits until the host may touch the memory of `device`: synchronises this thread's current stream, if it has
// pending work. Raises what queued kernels threw meanwhile.
void wait_for_device(c10::DeviceIndex device);

// The host address of a device address; addresses that are not the device's (a CPU scalar's, or those of
// copies where the driver has no host window) come back unchanged.
inline void* host_pointer(const void* pointer) {
  const auto host_window = driver().host_window;
  void* window = C10_LIKELY(host_window != nullptr) ? host_window(pointer) : nullptr;
  return window != nullptr ? window : const_cast<void*>(pointer);
}

// The elements of `tensor` as host code may read and write them, at its storage offset. Where T is const it
// only reads, which leaves memory that is copied on write shared.
template <class T>
T* host_data(const at::TensorBase& tensor) {
  if constexpr (std::is_const_v<T>) {
    return static_cast<T*>(host_pointer(tensor.const_data_ptr()));
  } else {
    return static_cast<T*>(host_pointer(tensor.mutable_data_ptr()));
  }
}

}  // namespace opsmith
