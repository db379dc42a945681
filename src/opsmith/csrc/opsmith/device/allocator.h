// PyTorch's allocator for the device: one allocation of the driver's for each storage, with statistics.
#pragma once

#include <optional>

#include <c10/core/CachingDeviceAllocator.h>

namespace opsmith {

// The allocator that is registered for the device. Allocates on the current device; memory is released when
// the work that was queued on the stream of its allocation, and on those given to recordStream(), is done.
c10::DeviceAllocator& device_allocator();

// The device on which `pointer` points into live memory, if any. Walks all live blocks: not for hot paths.
std::optional<c10::DeviceIndex> device_of(const void* pointer);

}  // namespace opsmith
