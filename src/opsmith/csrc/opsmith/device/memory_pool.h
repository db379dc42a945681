// Private pools of the allocator: memory of graphs (capture.h) and of torch.<name>.MemPool. A pool is a
// number; who holds one keeps its memory from everybody else's allocations.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace opsmith {

// A pool that no one has.
uint64_t new_pool();

void hold_pool(c10::DeviceIndex device, uint64_t pool);
// Its memory is like any other, once nobody holds it.
void release_pool(c10::DeviceIndex device, uint64_t pool) noexcept;
int64_t pool_holders(c10::DeviceIndex device, uint64_t pool);

}  // namespace opsmith
