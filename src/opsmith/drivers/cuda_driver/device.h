// The devices and their primary contexts, which PyTorch's own CUDA would share.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "api.h"

namespace cuda {

struct Device {
  CUdevice id = 0;
  std::string name;
  size_t memory = 0;
  int group_items = 0;
  int local_memory = 0;
  int multiprocessors = 0;
  int major = 0;
  int minor = 0;

  // Opened when it is first asked for: it takes memory of the device.
  CUcontext context() const;

 private:
  mutable std::once_flag is_open_;
  mutable CUcontext context_ = nullptr;
};

// Found once. Throws Failure where there is none.
const std::deque<Device>& devices();

// Throws Failure where there is no device of that number.
const Device& device_at(int device);

// The device, whose context is then current in this thread.
const Device& use_device(int device);

}  // namespace cuda
