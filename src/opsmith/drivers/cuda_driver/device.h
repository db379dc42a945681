// The devices and their primary contexts, which PyTorch's own CUDA would share.
#pragma once

#include <string>
#include <vector>

#include "api.h"

namespace cuda {

struct Device {
  CUdevice id;
  CUcontext context;
  std::string name;
  size_t memory;
  int group_items;
  int local_memory;
  int multiprocessors;
  int major;
  int minor;
};

// Found once. Throws Failure where there is none.
const std::vector<Device>& devices();

// The device, whose context is then current in this thread. Throws Failure where there is no device of that
// number.
const Device& use_device(int device);

}  // namespace cuda
