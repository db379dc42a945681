// Staging memory: host memory for copies of what lies on a device without a host window, and for what CPU
// kernels compute from them.
//
// Fresh memory of the system costs a page fault for each 4 KiB, which is more than copying them. So large
// blocks are kept for the next copy, up to a bound for the process.
#pragma once

#include <c10/core/Allocator.h>

namespace opsmith {

// Smaller blocks are malloc's, which keeps their pages by itself.
constexpr size_t kLeastStaging = size_t{64} << 10;

// `bytes` of uninitialised host memory; any thread may release it.
at::DataPtr allocate_staging(size_t bytes);

// Gives what is kept back to the system.
void release_idle_staging() noexcept;

}  // namespace opsmith
