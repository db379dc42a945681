// Pinned host memory: PyTorch's host allocator over the driver's pinned_* entries.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace opsmith {

// The allocator behind pin_memory(). Its record_event(pointer, context, stream) must be called for each
// asynchronous copy that uses pinned memory: the memory is then released only when that stream's work is
// done.
at::HostAllocator& pinned_allocator();

// The blocks of pinned memory that are in use, and their bytes.
struct PinnedStatistics {
  c10::CachingAllocator::Stat count;
  c10::CachingAllocator::Stat bytes;
};
PinnedStatistics pinned_statistics();

// Whether `pointer` lies in the driver's pinned memory; false when the driver has none.
bool is_pinned(const void* pointer);

// Host memory for recorded work, which the graph keeps; pinned.
void* graph_memory(size_t bytes, c10::DeviceIndex device);

}  // namespace opsmith
