// The frame of every function of the driver's: no exception leaves it, and a lost device does nothing.
#pragma once

#include <opsmith_driver.h>

#include <exception>
#include <new>

#include "errors.h"
#include "faults.h"
#include "stream.h"

namespace sim {

// Runs an entry's body and keeps its exceptions on this side of the C boundary.
template <class Body>
opsmith_status entry(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(OPSMITH_FAILED, "the host is out of memory");
  } catch (const std::exception& error) {
    return fail(OPSMITH_FAILED, "%s", error.what());
  }
}

inline opsmith_status lost(int device) {
  return fail(OPSMITH_DEVICE_LOST, "device %d is lost (injected fault: device_lost:%d)", device, device);
}

template <class Body>
opsmith_status on_stream(opsmith_stream stream, Body&& body) noexcept {
  return entry([&] {
    if (stream == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the stream is null");
    }
    if (faults::is_lost(stream->device())) {
      return lost(stream->device());
    }
    return body();
  });
}

}  // namespace sim
