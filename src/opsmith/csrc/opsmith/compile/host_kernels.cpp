// Where kernels that Inductor generates in C++ find the elements of their arguments:
// runtime/compile/inductor.py.
#include <dlfcn.h>

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <opsmith/device/device.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/host_access.h>

namespace opsmith {

namespace {

using DataPointer = void* (*)(void* python_tensor);

DataPointer device_data_pointer = nullptr;

// This library is not linked to Python, in which all that is called.
struct WithoutGil {
  WithoutGil() : state_(save() != nullptr ? save()() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) {
      restore()(state_);
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  using Save = void* (*)();
  using Restore = void (*)(void*);
  static Save save() {
    static const auto found = reinterpret_cast<Save>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
    return found;
  }
  static Restore restore() {
    static const auto found = reinterpret_cast<Restore>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
    return found;
  }

  void* state_;
};

// The address at which the host sees a Tensor's elements, when the current stream's work is done.
void* host_data_pointer(void* python_tensor) {
  void* const data = device_data_pointer(python_tensor);
  const c10::DeviceIndex device = current_device();
  if (C10_UNLIKELY(driver().stream_query(current_stream(device)) != OPSMITH_OK)) {
    const WithoutGil scope;  // the stream may run a kernel in Python
    wait_for_device(device);
  }
  raise_late_failure();
  return host_pointer(data);
}

// The address of a function that gives that address of a Tensor of Python's; `data_pointer` gives the
// device's.
int64_t host_data_pointer_after(int64_t data_pointer) {
  device_data_pointer = reinterpret_cast<DataPointer>(data_pointer);
  return reinterpret_cast<int64_t>(&host_data_pointer);
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("host_data_pointer_after(int data_pointer) -> int", &host_data_pointer_after);
}

}  // namespace

}  // namespace opsmith
