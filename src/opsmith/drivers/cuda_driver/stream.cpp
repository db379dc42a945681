// See stream.h.
#include "stream.h"

#include <opsmith_compute.h>

#include <map>

#include "device.h"
#include "errors.h"

using cuda::api;

const void* opsmith_stream_s::faults() {
  const std::lock_guard lock(mutex_);
  if (faults_ == 0) {
    cuda::use_device(device);
    CUdeviceptr made = 0;
    cuda::check(api().MemAlloc(&made, sizeof(int)), "prepare for faults");
    // Not on this stream, which may be captured.
    cuda::check(api().MemsetD8Async(made, 0, sizeof(int), nullptr), "prepare for faults");
    cuda::check(api().StreamSynchronize(nullptr), "prepare for faults");
    faults_ = made;
    looked_at_.insert(made);
  }
  may_have_fault_ = true;
  return reinterpret_cast<const void*>(faults_);
}

CUdeviceptr opsmith_stream_s::own_faults() {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void opsmith_stream_s::expect_fault_at(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  looked_at_.insert(address);
  may_have_fault_ = true;
}

void opsmith_stream_s::raise_fault() {
  if (!may_have_fault_.exchange(false)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  cuda::use_device(device);
  for (const CUdeviceptr address : looked_at_) {
    int fault = 0;
    cuda::check(api().MemcpyDtoHAsync(&fault, address, sizeof(fault), stream), "ask for faults");
    cuda::check(api().StreamSynchronize(stream), "ask for faults");
    if (fault != 0) {
      cuda::check(api().MemsetD8Async(address, 0, sizeof(int), stream), "reset faults");
      throw cuda::Failure(OPSMITH_FAILED, driver_parts::fault_text(fault));
    }
  }
}

namespace cuda {

opsmith_stream new_stream(int device, int priority) {
  use_device(device);
  CUstream stream = nullptr;
  // CUDA's convention is PyTorch's, and it takes a number beyond its range for the nearest within.
  check(api().StreamCreateWithPriority(&stream, kStreamNonBlocking, priority), "make a stream");
  return new opsmith_stream_s(device, stream);
}

opsmith_stream default_stream(int device) {
  static std::mutex mutex;
  static auto* const streams =
      new std::map<int, opsmith_stream>;  // never destroyed: work may be queued at the end
  const std::lock_guard lock(mutex);
  opsmith_stream& stream = (*streams)[device];
  if (stream == nullptr) {
    stream = new_stream(device, 0);
  }
  return stream;
}

}  // namespace cuda
