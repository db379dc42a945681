// The platform, its devices and the context that they share. OPSMITH_OPENCL_PLATFORM chooses one of several
// platforms by a part of its name; else it is the first that has a device.
#pragma once

#include <string>
#include <vector>

#include "api.h"

namespace opencl {

struct DeviceFacts {
  cl_device_id id;
  std::string name;
  std::string version;  // the device's and its driver's: binaries are for no other
  cl_ulong memory;
  cl_ulong largest_allocation;
  cl_ulong local_memory;
  size_t group_items;
  cl_uint units;
  bool is_cpu;
  bool has_double;
};

struct Platform {
  std::string name;
  std::vector<DeviceFacts> devices;
  cl_context context;
};

// Opened once. Throws Failure where there is none, or none of the name that is asked for.
const Platform& platform();

// Throws Failure where there is no device of that number.
const DeviceFacts& device_facts(int device);

}  // namespace opencl
