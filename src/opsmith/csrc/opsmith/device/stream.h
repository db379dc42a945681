// Streams: PyTorch's stream ids and the driver's handles, and the stream that is current in this thread.
#pragma once

#include <opsmith/loaded_driver.h>

#include <c10/core/Stream.h>
#include <c10/util/FunctionRef.h>

namespace opsmith {

// The driver's handle of a PyTorch stream of this device type. Stream id 0 is the device's default stream.
opsmith_stream native_stream(c10::Stream stream);

// The id of the stream that is current for `device` in this thread, for c10::Stream.
int64_t current_stream_id(c10::DeviceIndex device);

// Makes `stream` current for its device in this thread and returns the id of the one that was.
int64_t exchange_stream(c10::Stream stream);

// The id of a stream other than the default one. Streams come from pools of 32 per device and urgency
// (`priority` below 0 is urgent), so the 33rd call gives the first one again.
int64_t new_stream(c10::DeviceIndex device, int priority);

// The id of `stream`, which opsmith has made for `device`; -1 if it has not.
int64_t stream_id(opsmith_stream stream, c10::DeviceIndex device);

// Calls `visit` with each stream that opsmith has made for `device`.
void each_stream(c10::DeviceIndex device, c10::function_ref<void(opsmith_stream)> visit);

}  // namespace opsmith
