// Streams: PyTorch's stream ids and the driver's handles, and the stream that is current in this thread.
#pragma once

#include <opsmith_driver.h>

#include <c10/core/Stream.h>

namespace opsmith {

// The driver's handle of a PyTorch stream of this device type. Stream id 0 is the device's default stream.
opsmith_stream native_stream(c10::Stream stream);

// The stream that is current for `device` in this thread, as the driver's handle.
opsmith_stream current_stream(c10::DeviceIndex device);

// The id of that stream, for c10::Stream.
int64_t current_stream_id(c10::DeviceIndex device);

// Makes `stream` current for its device in this thread and returns the id of the one that was.
int64_t exchange_stream(c10::Stream stream);

// The id of a stream other than the default one. Streams come from pools of 32 per device and urgency
// (`priority` below 0 is urgent), so the 33rd call gives the first one again.
int64_t new_stream(c10::DeviceIndex device, int priority);

// The id of `stream`, which opsmith has made for `device`; -1 if it has not.
int64_t stream_id(opsmith_stream stream, c10::DeviceIndex device);

// Waits for the work that `stream`, of `device`, has pending; costs one query if it has none.
void synchronize_stream(opsmith_stream stream, c10::DeviceIndex device);

// The same before memory is released that the work may use. Nothing can be raised there: the next check()
// raises a failure.
void finish_stream(opsmith_stream stream, c10::DeviceIndex device) noexcept;

// Synchronises every stream of `device` that opsmith has handed out.
void synchronize_device(c10::DeviceIndex device);

// The same before memory is released that any of them may use; as finish_stream().
void finish_device(c10::DeviceIndex device) noexcept;

}  // namespace opsmith
