// The private pool of the allocator (memory_pool.h) that a thread has chosen.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace opsmith {

// The pool of what this thread allocates on `device`; 0 for none.
uint64_t pool_of_thread(c10::DeviceIndex device) noexcept;
// Sets it, and returns the one before.
uint64_t exchange_pool_of_thread(c10::DeviceIndex device, uint64_t pool);

}  // namespace opsmith
