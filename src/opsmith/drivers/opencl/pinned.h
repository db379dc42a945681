// Pinned host memory: buffers that OpenCL allocates in memory of the host, mapped for as long as they live.
// A device reads and writes it directly, so that copies from and to it do not wait.
#pragma once

#include <cstddef>

namespace opencl {

// Throws Failure.
void* allocate_pinned(size_t bytes);
// Throws Failure for what allocate_pinned() did not give.
void release_pinned(void* pointer);
bool is_pinned(const void* pointer);

}  // namespace opencl
