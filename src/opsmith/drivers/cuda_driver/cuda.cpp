// The driver's table: the entries of opsmith_driver.h over CUDA's driver API.
#include <opsmith_driver.h>

#include <cstdio>
#include <cstring>

#include "device.h"
#include "errors.h"
#include "graph.h"
#include "stream.h"

namespace cuda {
namespace {

constexpr uint32_t kAlignment = 256;

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

// ---- devices ----

opsmith_status device_count(int* count) {
  return entry([&] { *count = static_cast<int>(devices().size()); });
}

opsmith_status device_properties(int device, opsmith_device_properties* properties) {
  return entry([&] {
    const Device& found = device_at(device);
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "%s", found.name.c_str());
    std::snprintf(properties->architecture, sizeof(properties->architecture), "sm_%d%d", found.major,
                  found.minor);
    properties->total_memory = found.memory;
    properties->alignment = kAlignment;
    properties->multiprocessors = static_cast<uint32_t>(found.multiprocessors);
  });
}

opsmith_status device_memory(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return entry([&] {
    use_device(device);
    size_t available = 0;
    size_t total = 0;
    check(api().MemGetInfo(&available, &total), "ask for the free memory");
    *free_bytes = available;
    *total_bytes = total;
  });
}

// ---- memory ----

opsmith_status allocate(int device, size_t bytes, void** pointer) {
  return entry([&] {
    use_device(device);
    CUdeviceptr made = 0;
    check(api().MemAlloc(&made, bytes), ("allocate " + std::to_string(bytes) + " bytes").c_str());
    *pointer = reinterpret_cast<void*>(made);
  });
}

opsmith_status release(int device, void* pointer) {
  return entry([&] {
    use_device(device);
    check(api().MemFree(address(pointer)), "release memory");
  });
}

int pinned_contains(const void* pointer) {
  unsigned type = 0;
  const opsmith_status status = entry([&] { use_device(0); });
  return status == OPSMITH_OK &&
                 api().PointerGetAttribute(&type, kMemoryTypeOfPointer, address(pointer)) == kSuccess &&
                 type == kMemoryTypeHost
             ? 1
             : 0;
}

opsmith_status copy(void* destination, int destination_device, const void* source, int source_device,
                    size_t bytes, opsmith_stream stream) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    const void* const host = source_device == OPSMITH_HOST        ? source
                             : destination_device == OPSMITH_HOST ? destination
                                                                  : nullptr;
    if (host != nullptr && is_captured(stream) && pinned_contains(host) == 0) {
      refuse_captured(stream, "copy memory that is not pinned");
    }
    if (source_device == OPSMITH_HOST) {
      // Pageable memory is staged before it returns.
      check(api().MemcpyHtoDAsync(address(destination), source, bytes, stream->stream),
            "copy memory from the host");
    } else if (destination_device == OPSMITH_HOST) {
      check(api().MemcpyDtoHAsync(destination, address(source), bytes, stream->stream),
            "copy memory to the host");
    } else if (source_device == destination_device) {
      check(api().MemcpyDtoDAsync(address(destination), address(source), bytes, stream->stream),
            "copy memory");
    } else {
      const CUcontext from = device_at(source_device).context();
      const CUcontext to = device_at(destination_device).context();
      check(api().MemcpyPeerAsync(address(destination), to, address(source), from, bytes, stream->stream),
            "copy memory between devices");
    }
  });
}

opsmith_status fill(int device, void* destination, uint8_t value, size_t bytes, opsmith_stream stream) {
  return entry([&] {
    use_device(device);
    check(api().MemsetD8Async(address(destination), value, bytes, given(stream, "stream")->stream),
          "fill memory");
  });
}

// ---- streams ----

opsmith_status default_stream_entry(int device, opsmith_stream* stream) {
  return entry([&] { *stream = default_stream(device); });
}

opsmith_status stream_create(int device, int priority, opsmith_stream* stream) {
  return entry([&] { *stream = new_stream(device, priority); });
}

opsmith_status stream_destroy(opsmith_stream stream) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    check(api().StreamDestroy(stream->stream), "destroy a stream");
    delete stream;
  });
}

// Ready, or not yet.
opsmith_status answer(CUresult result, const char* action) {
  return result == kNotReady ? OPSMITH_NOT_READY : entry([&] { check(result, action); });
}

opsmith_status stream_query(opsmith_stream stream) {
  CUresult result = kSuccess;
  const opsmith_status status = entry([&] {
    use_device(given(stream, "stream")->device);
    // Where a kernel may have left a fault, who waits then is told.
    result = stream->may_have_fault() || is_captured(stream) ? kNotReady : api().StreamQuery(stream->stream);
  });
  return status != OPSMITH_OK ? status : answer(result, "ask whether a stream is idle");
}

opsmith_status stream_synchronize(opsmith_stream stream) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    refuse_captured(stream, "wait for a stream");
    check(api().StreamSynchronize(stream->stream), "wait for a stream");
    stream->raise_fault();
  });
}

opsmith_status stream_host_function(opsmith_stream stream, void (*function)(void*), void* argument) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    check(api().LaunchHostFunc(stream->stream, function, argument), "queue a function of the host");
  });
}

// ---- events ----

opsmith_status event_create(int device, int timing, opsmith_event* event) {
  return entry([&] {
    use_device(device);
    CUevent made = nullptr;
    check(api().EventCreate(&made, timing != 0 ? 0 : kEventWithoutTiming), "make an event");
    *event = new opsmith_event_s{device, made};
  });
}

opsmith_status event_destroy(opsmith_event event) {
  return entry([&] {
    use_device(given(event, "event")->device);
    check(api().EventDestroy(event->event), "destroy an event");
    delete event;
  });
}

opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    check(api().EventRecord(given(event, "event")->event, stream->stream), "record an event");
  });
}

opsmith_status event_query(opsmith_event event) {
  CUresult result = kSuccess;
  const opsmith_status status = entry([&] {
    use_device(given(event, "event")->device);
    result = api().EventQuery(event->event);
  });
  return status != OPSMITH_OK ? status : answer(result, "ask whether an event is done");
}

opsmith_status event_synchronize(opsmith_event event) {
  return entry([&] {
    use_device(given(event, "event")->device);
    check(api().EventSynchronize(event->event), "wait for an event");
  });
}

opsmith_status event_elapsed(opsmith_event start, opsmith_event end, double* milliseconds) {
  return entry([&] {
    use_device(given(start, "event")->device);
    float elapsed = 0;
    check(api().EventSynchronize(given(end, "event")->event), "wait for an event");
    check(api().EventElapsedTime(&elapsed, start->event, end->event), "ask for the time between events");
    *milliseconds = elapsed;
  });
}

opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    check(api().StreamWaitEvent(stream->stream, given(event, "event")->event, 0), "wait for an event");
  });
}

// ---- pinned host memory ----

opsmith_status pinned_allocate(size_t bytes, void** pointer) {
  return entry([&] {
    constexpr unsigned kPortable = 1;
    use_device(0);
    check(api().MemHostAlloc(pointer, bytes, kPortable), "allocate pinned memory");
  });
}

opsmith_status pinned_release(void* pointer) {
  return entry([&] {
    use_device(0);
    check(api().MemFreeHost(pointer), "release pinned memory");
  });
}

// ---- ranges of the program ----

opsmith_status range_push(const char* text) {
  if (nvtx().RangePushA != nullptr) {
    nvtx().RangePushA(text);
  }
  return OPSMITH_OK;
}

opsmith_status range_pop() {
  if (nvtx().RangePop != nullptr) {
    nvtx().RangePop();
  }
  return OPSMITH_OK;
}

// ---- memory shared with other processes ----

static_assert(sizeof(CUipcMemHandle) <= sizeof(opsmith_memory_handle::bytes));

opsmith_status memory_export(int device, void* pointer, opsmith_memory_handle* handle) {
  return entry([&] {
    use_device(device);
    CUipcMemHandle made{};
    check(api().IpcGetMemHandle(&made, address(pointer)), "export memory");
    std::memcpy(handle->bytes, &made, sizeof(made));
    handle->file = -1;
  });
}

opsmith_status memory_import(int device, const opsmith_memory_handle* handle, void** pointer) {
  return entry([&] {
    use_device(device);
    CUipcMemHandle given_handle{};
    std::memcpy(&given_handle, handle->bytes, sizeof(given_handle));
    CUdeviceptr opened = 0;
    check(api().IpcOpenMemHandle(&opened, given_handle, kIpcLazyEnablePeerAccess),
          "import memory of another process");
    *pointer = reinterpret_cast<void*>(opened);
  });
}

opsmith_status memory_unimport(int device, void* pointer) {
  return entry([&] {
    use_device(device);
    check(api().IpcCloseMemHandle(address(pointer)), "give up memory of another process");
  });
}

const opsmith_driver table = {
    .abi_version = OPSMITH_DRIVER_ABI_VERSION,
    .struct_size = sizeof(opsmith_driver),
    .name = "cuda_driver",
    .last_error = last_error,
    .device_count = device_count,
    .device_properties = device_properties,
    .device_memory = device_memory,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .default_stream = default_stream_entry,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_query = stream_query,
    .stream_synchronize = stream_synchronize,
    .stream_host_function = stream_host_function,
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
    .host_window = nullptr,
    .range_push = range_push,
    .range_pop = range_pop,
    .memory_export = memory_export,
    .memory_import = memory_import,
    .memory_unimport = memory_unimport,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .stream_is_captured = stream_is_captured,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .graph_dump = graph_dump,
};

}  // namespace
}  // namespace cuda

extern "C" __attribute__((visibility("default"))) const opsmith_driver* opsmith_get_driver(void) {
  return &cuda::table;
}
