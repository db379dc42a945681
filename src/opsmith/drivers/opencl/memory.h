// Device memory. OpenCL hands out buffers and no addresses, PyTorch wants addresses to calculate with: each
// buffer gets a range of a reserved address space that nobody can read or write, and an address in it stands
// for the buffer and an offset. Released buffers are kept for the next allocation of their size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api.h"

namespace opencl {

constexpr size_t kAlignment = 256;

struct Place {
  cl_mem buffer;
  size_t offset;
  size_t left;  // bytes from here to the buffer's end
};

// Throws Failure with OPSMITH_OUT_OF_MEMORY above the device's limits.
void* allocate(int device, size_t bytes);
// Throws Failure for what allocate() did not give.
void release(int device, void* pointer);
uint64_t free_memory(int device);

// Where `pointer`, which allocate() gave, or one inside of its memory, lies. Throws Failure for others.
Place place_of(const void* pointer);

}  // namespace opencl
