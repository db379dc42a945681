// The driver's table: the entries of opsmith_driver.h over OpenCL's commands.
#include <opsmith_driver.h>

#include <cstdio>

#include "api.h"
#include "errors.h"
#include "memory.h"
#include "pinned.h"
#include "platform.h"
#include "stream.h"

namespace opencl {
namespace {

// ---- devices ----

opsmith_status device_count(int* count) {
  return entry([&] { *count = static_cast<int>(platform().devices.size()); });
}

opsmith_status device_properties(int device, opsmith_device_properties* properties) {
  return entry([&] {
    const DeviceFacts& facts = device_facts(device);
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "%s", facts.name.c_str());
    std::snprintf(properties->architecture, sizeof(properties->architecture), "%s", platform().name.c_str());
    properties->total_memory = facts.memory;
    properties->alignment = kAlignment;
    properties->multiprocessors = facts.units;
  });
}

opsmith_status device_memory(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return entry([&] {
    *total_bytes = device_facts(device).memory;
    *free_bytes = free_memory(device);
  });
}

// ---- memory ----

opsmith_status allocate_entry(int device, size_t bytes, void** pointer) {
  return entry([&] { *pointer = allocate(device, bytes); });
}

opsmith_status release_entry(int device, void* pointer) {
  return entry([&] { release(device, pointer); });
}

Place place_of(const void* pointer, size_t bytes) {
  const Place place = opencl::place_of(pointer);
  if (bytes > place.left) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, std::to_string(bytes) +
                                                " bytes from this address are more than its "
                                                "allocation has");
  }
  return place;
}

void copy_within_devices(const Place& to, const Place& from, size_t bytes, opsmith_stream_s& stream) {
  stream.add("copy memory", [&](cl_command_queue queue, cl_event* event) {
    return api().EnqueueCopyBuffer(queue, from.buffer, to.buffer, from.offset, to.offset, bytes, 0, nullptr,
                                   event);
  });
}

// Has the device start on what was queued, for which nobody waits.
cl_int flushed(cl_command_queue queue, cl_int error) {
  return error == kSuccess ? api().Flush(queue) : error;
}

opsmith_status copy(void* destination, int destination_device, const void* source, int source_device,
                    size_t bytes, opsmith_stream stream) {
  return entry([&] {
    given(stream, "stream");
    if (source_device == OPSMITH_HOST) {
      const Place to = place_of(destination, bytes);
      stream->add("copy memory from the host", [&](cl_command_queue queue, cl_event* event) {
        return flushed(queue, api().EnqueueWriteBuffer(queue, to.buffer, /*blocking=*/0, to.offset, bytes,
                                                       source, 0, nullptr, event));
      });
      if (!is_pinned(source)) {
        stream->wait();  // not within add(): other threads go on meanwhile
      }
    } else if (destination_device == OPSMITH_HOST) {
      const Place from = place_of(source, bytes);
      stream->add("copy memory to the host", [&](cl_command_queue queue, cl_event* event) {
        return flushed(queue, api().EnqueueReadBuffer(queue, from.buffer, /*blocking=*/0, from.offset, bytes,
                                                      destination, 0, nullptr, event));
      });
      if (!is_pinned(destination)) {
        stream->wait();
        stream->raise_fault();
      }
    } else {
      copy_within_devices(place_of(destination, bytes), place_of(source, bytes), bytes, *stream);
    }
  });
}

opsmith_status fill(int device, void* destination, uint8_t value, size_t bytes, opsmith_stream stream) {
  return entry([&] {
    device_facts(device);
    const Place to = place_of(destination, bytes);
    given(stream, "stream")->add("fill memory", [&](cl_command_queue queue, cl_event* event) {
      return api().EnqueueFillBuffer(queue, to.buffer, &value, sizeof(value), to.offset, bytes, 0, nullptr,
                                     event);
    });
  });
}

// ---- streams ----

opsmith_status default_stream_entry(int device, opsmith_stream* stream) {
  return entry([&] { *stream = default_stream(device); });
}

opsmith_status stream_create(int device, int /*priority: OpenCL 1.2 has none*/, opsmith_stream* stream) {
  return entry([&] { *stream = new opsmith_stream_s(device); });
}

opsmith_status stream_destroy(opsmith_stream stream) {
  return entry([&] { delete given(stream, "stream"); });
}

opsmith_status stream_query(opsmith_stream stream) {
  bool idle = false;
  const opsmith_status status = entry([&] { idle = given(stream, "stream")->is_idle(); });
  return status != OPSMITH_OK || idle ? status : OPSMITH_NOT_READY;
}

opsmith_status stream_synchronize(opsmith_stream stream) {
  return entry([&] {
    given(stream, "stream")->wait();
    stream->raise_fault();
  });
}

// ---- events ----

opsmith_status event_create(int device, int /*timing: queues always measure*/, opsmith_event* event) {
  return entry([&] {
    device_facts(device);
    *event = new opsmith_event_s;
  });
}

void replace(opsmith_event_s& event, cl_event marker, int device) {
  const std::lock_guard lock(event.mutex);
  if (event.marker != nullptr) {
    api().ReleaseEvent(event.marker);
  }
  event.marker = marker;
  event.device = device;
}

// The marker, retained for the caller; null where nothing was recorded.
cl_event marker_of(opsmith_event event) {
  given(event, "event");
  const std::lock_guard lock(event->mutex);
  if (event->marker != nullptr) {
    api().RetainEvent(event->marker);
  }
  return event->marker;
}

opsmith_status event_destroy(opsmith_event event) {
  return entry([&] {
    replace(*given(event, "event"), nullptr, -1);
    delete event;
  });
}

opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  return entry([&] {
    given(event, "event");
    cl_event marker = nullptr;
    given(stream, "stream")->add("record an event", [&](cl_command_queue queue, cl_event* made) {
      const cl_int error = api().EnqueueMarkerWithWaitList(queue, 0, nullptr, made);
      if (error == kSuccess) {
        api().RetainEvent(*made);
        marker = *made;
        api().Flush(queue);  // other queues may wait for it
      }
      return error;
    });
    replace(*event, marker, stream->device());
  });
}

opsmith_status event_query(opsmith_event event) {
  cl_int execution = kComplete;
  const opsmith_status status = entry([&] {
    if (const cl_event marker = marker_of(event)) {
      const cl_int error =
          api().GetEventInfo(marker, kEventExecutionStatus, sizeof(execution), &execution, nullptr);
      api().ReleaseEvent(marker);
      check(error, "ask whether an event is done");
    }
  });
  return status != OPSMITH_OK || execution <= kComplete ? status : OPSMITH_NOT_READY;
}

opsmith_status event_synchronize(opsmith_event event) {
  return entry([&] {
    if (const cl_event marker = marker_of(event)) {
      const cl_int error = api().WaitForEvents(1, &marker);
      api().ReleaseEvent(marker);
      check(error, "wait for an event");
    }
  });
}

cl_ulong time_of(opsmith_event event) {
  const cl_event marker = marker_of(event);
  if (marker == nullptr) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, "an event that was not recorded has no time");
  }
  cl_ulong nanoseconds = 0;
  cl_int error = api().WaitForEvents(1, &marker);
  if (error == kSuccess) {
    error = api().GetEventProfilingInfo(marker, kProfilingEnd, sizeof(nanoseconds), &nanoseconds, nullptr);
  }
  api().ReleaseEvent(marker);
  check(error, "ask for an event's time");
  return nanoseconds;
}

opsmith_status event_elapsed(opsmith_event start, opsmith_event end, double* milliseconds) {
  return entry([&] {
    *milliseconds = (static_cast<double>(time_of(end)) - static_cast<double>(time_of(start))) / 1e6;
  });
}

opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  return entry([&] {
    given(stream, "stream");
    const cl_event marker = marker_of(event);
    if (marker == nullptr) {
      return;
    }
    stream->add("wait for an event", [&](cl_command_queue queue, cl_event* made) {
      const cl_int error = api().EnqueueBarrierWithWaitList(queue, 1, &marker, made);
      api().ReleaseEvent(marker);
      return error;
    });
  });
}

// ---- pinned host memory ----

opsmith_status pinned_allocate(size_t bytes, void** pointer) {
  return entry([&] { *pointer = allocate_pinned(bytes); });
}

opsmith_status pinned_release(void* pointer) {
  return entry([&] { release_pinned(pointer); });
}

int pinned_contains(const void* pointer) {
  return is_pinned(pointer) ? 1 : 0;
}

const opsmith_driver table = {
    .abi_version = OPSMITH_DRIVER_ABI_VERSION,
    .struct_size = sizeof(opsmith_driver),
    .name = "opencl",
    .last_error = last_error,
    .device_count = device_count,
    .device_properties = device_properties,
    .device_memory = device_memory,
    .allocate = allocate_entry,
    .release = release_entry,
    .copy = copy,
    .fill = fill,
    .default_stream = default_stream_entry,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .stream_wait_event = stream_wait_event,
    .pinned_allocate = pinned_allocate,
    .pinned_release = pinned_release,
    .pinned_contains = pinned_contains,
};

}  // namespace
}  // namespace opencl

extern "C" __attribute__((visibility("default"))) const opsmith_driver* opsmith_get_driver(void) {
  return &opencl::table;
}
