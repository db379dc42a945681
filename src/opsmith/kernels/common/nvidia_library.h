// NVIDIA's libraries for kernels on the driver `cuda_driver`: opened when a kernel first calls one, with a
// handle for each thread and device.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>
#include <opsmith_cuda.h>
#include <opsmith_vendor_library.h>

namespace opsmith::nvidia {

// An open library. What is missing raises NotImplementedError, which ends with `remedy`.
class Library {
 public:
  // Opens what the environment's `variable` names, or, where it is not set, the first of `places` that opens.
  Library(const char* name, const char* purpose, const char* remedy, const char* variable,
          std::initializer_list<std::string> places)
      : name_(name), remedy_(remedy), library_(open_vendor_library(library_named_by(variable), places)) {
    TORCH_CHECK_NOT_IMPLEMENTED(library_ != nullptr, name, ", which ", purpose, ", is missing", remedy);
  }

  template <class Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, symbol));
    TORCH_CHECK_NOT_IMPLEMENTED(function != nullptr, "the ", name_, " here lacks ", symbol, remedy_);
  }

 private:
  const char* name_;
  const char* remedy_;
  void* library_;
};

// A library's numbers of dtypes.
struct DataTypes {
  int float32, float64, float16, bfloat16;

  int of(at::ScalarType dtype) const {
    switch (dtype) {
      case at::kFloat:
        return float32;
      case at::kDouble:
        return float64;
      case at::kHalf:
        return float16;
      default:
        return bfloat16;
    }
  }
};

// The handle of this thread for `device`, on the stream that is current there, by a library's own functions.
// `check(status, action)` raises failures. It is never destroyed: the driver may be gone when threads end.
template <class Handle>
Handle handle(int (*create)(Handle*), int (*set_stream)(Handle, void* stream), c10::DeviceIndex device,
              void (*check)(int status, const char* action)) {
  void* stream = nullptr;
  opsmith::check(opsmith_cuda_stream(current_stream(device), &stream), "give a library its stream", device);
  thread_local std::array<Handle, kMostDevices> handles{};
  Handle& found = handles[static_cast<size_t>(device)];
  if (found == nullptr) {
    check(create(&found), "start");
  }
  check(set_stream(found, stream), "use a stream");
  return found;
}

}  // namespace opsmith::nvidia
