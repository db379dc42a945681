// Copies of bytes: host to device, device to host, within a device and between devices.
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Device.h>

namespace opsmith {

// Copies bytes and waits for them. Devices are ordinals or OPSMITH_HOST, of which at most one may be; the
// copy is ordered on the current stream of the device that takes part (the source's, if both do).
void copy_bytes(void* destination, int destination_device, const void* source, int source_device,
                size_t bytes);

// The same without waiting, on a stream that is captured; the host's memory is pinned.
void record_copy(void* destination, int destination_device, const void* source, int source_device,
                 size_t bytes);

namespace detail {
inline thread_local uint64_t bytes_moved = 0;
}

// Adds to what the call that this thread is in has moved between host and device.
inline void count_moved(size_t bytes) noexcept {
  detail::bytes_moved += bytes;
}

// Queues a copy on the current streams of the devices, one of which may be OPSMITH_HOST. Errors say that they
// could not `action` on `device`.
void queue_copy(void* destination, int destination_device, const void* source, int source_device,
                size_t bytes, const char* action, c10::DeviceIndex device);

}  // namespace opsmith
