// The memory of the CPU tensors that host code allocates: the device's, so that a result needs no copy to
// reach it.
//
// PyTorch's CPU allocator is wrapped once, when the library is loaded. The wrapper asks a flag of the thread:
// unset, it is the allocator that was there; set, it takes memory from the device's allocator and hands out
// the host window's address of it. Without a window it takes staging memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace opsmith {

class ResultMemory {
 public:
  // While it lives, what this thread allocates for CPU tensors lies in the memory of `device`, or in staging
  // memory; -1 stands for the host's own memory.
  explicit ResultMemory(c10::DeviceIndex device) noexcept;
  ~ResultMemory();
  ResultMemory(const ResultMemory&) = delete;
  ResultMemory& operator=(const ResultMemory&) = delete;

  // When `memory` (of a CPU storage) lies in the memory of `device`: takes that memory out of it, leaving it
  // without an owner, and returns the device's pointer to the same bytes. Otherwise returns an empty pointer.
  static at::DataPtr take(at::DataPtr& memory, c10::DeviceIndex device);

 private:
  c10::DeviceIndex previous_;
};

}  // namespace opsmith
