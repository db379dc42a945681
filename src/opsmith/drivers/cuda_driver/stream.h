// Streams and events, with the device that each belongs to.
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include <opsmith_driver.h>

#include "api.h"

struct opsmith_stream_s {
  opsmith_stream_s(int device, CUstream stream) : device(device), stream(stream) {}

  // The device address of the int in which the next kernel may leave a mistake (opsmith_compute.h).
  const void* faults();
  bool may_have_fault() const { return may_have_fault_; }
  // The address that faults() gave; 0 where nothing has asked for it.
  CUdeviceptr own_faults();
  // A graph of another stream's kernels was queued, and they leave theirs where it has them.
  void expect_fault_at(CUdeviceptr address);
  // For a stream that has been waited for. Throws Failure where a kernel has left one.
  void raise_fault();

  const int device;
  const CUstream stream;

 private:
  std::mutex mutex_;
  CUdeviceptr faults_ = 0;
  std::set<CUdeviceptr> looked_at_;
  std::atomic<bool> may_have_fault_ = false;
};

struct opsmith_event_s {
  const int device;
  const CUevent event;
};

namespace cuda {

opsmith_stream new_stream(int device, int priority);
opsmith_stream default_stream(int device);

}  // namespace cuda
