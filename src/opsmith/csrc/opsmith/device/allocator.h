// PyTorch's allocator for the device: opsmith_caching_allocator.h over the driver, one for each device.
#pragma once

#include <opsmith_caching_allocator.h>

#include <optional>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>

namespace opsmith {

// The allocator that is registered for the device. Allocates on the current device, for its current stream;
// what is freed serves that stream again, and others given to recordStream() have then done their work.
c10::DeviceAllocator& device_allocator();

// The cache of one device.
caching::CachingAllocator& device_cache(c10::DeviceIndex device);
// The same of a device on which something was allocated; else null, without a call of the driver.
caching::CachingAllocator* used_device_cache(c10::DeviceIndex device);

// The free and the total memory of a device in bytes, whoever uses it.
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

// Is called before a block of `device` is given back.
using ReleaseObserver = void (*)(const caching::Block& block, c10::DeviceIndex device) noexcept;
void observe_releases(ReleaseObserver observer);

// The settings of OPSMITH_ALLOC_CONF. Throws c10::Error for what they cannot be.
const caching::Settings& allocator_settings();

// Has memory of the allocator released by its address: what is copied on write is shared in that form only.
void make_shareable(c10::DataPtr& data);

// Where memory of the allocator lies in the driver's.
struct MemoryPlace {
  c10::DeviceIndex device;
  void* allocation;  // of the driver's allocate()
  size_t offset;     // in bytes
};

// None for memory of elsewhere, say of from_blob().
std::optional<MemoryPlace> place_of(const c10::DataPtr& data);

// A block of the allocator's, and its device.
struct BlockPlace {
  c10::DeviceIndex device;
  caching::BlockView block;
};

// The block that `pointer` points into, live or free, if any. Walks blocks: not for hot paths.
std::optional<BlockPlace> block_at(const void* pointer);

// The device on which `pointer` points into live memory, if any. Walks blocks: not for hot paths.
std::optional<c10::DeviceIndex> device_of(const void* pointer);

}  // namespace opsmith
