// The sim driver's table: the entries of opsmith_driver.h, each of which checks its arguments, asks for
// injected faults and hands over to the memory, streams and pinned ranges beside this file.
#include "sim.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

#include "entry.h"
#include "faults.h"
#include "graph.h"
#include "memory.h"
#include "pinned.h"
#include "ranges.h"
#include "stream.h"

namespace sim {
namespace {

// Copies and fills up to this size run inline on an idle stream (see Note [Inline tasks]): about the time of
// one hop.
constexpr size_t kInlineBytes = size_t{1} << 20;

// The simulator and the device an entry works on; `body` sees both only if they exist and the device is not
// lost.
template <class Body>
opsmith_status on_device(int index, Body&& body) noexcept {
  return entry([&] {
    Simulator* const simulator = Simulator::instance();
    if (simulator == nullptr) {
      return OPSMITH_FAILED;
    }
    Device* const device = simulator->find_device(index);
    if (device == nullptr) {
      return OPSMITH_INVALID_ARGUMENT;
    }
    if (faults::is_lost(index)) {
      return lost(index);
    }
    return body(*simulator, *device);
  });
}

template <class Body>
opsmith_status on_event(opsmith_event event, Body&& body) noexcept {
  return entry([&] {
    if (event == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the event is null");
    }
    if (faults::is_lost(event->device)) {
      return lost(event->device);
    }
    return body();
  });
}

// Waits, unless the caller is a host function on that very stream.
opsmith_status wait_for(opsmith_stream stream, opsmith_stream_s::Ticket ticket) {
  if (stream->is_own_thread()) {
    return fail(OPSMITH_INVALID_ARGUMENT, "a host function may not wait for the stream that it runs on");
  }
  if (stream->capture() != nullptr) {
    return fail(OPSMITH_FAILED, "the stream is captured, and what it records does not run");
  }
  stream->wait(ticket);
  return OPSMITH_OK;
}

// ---- devices ----

opsmith_status device_count(int* count) {
  return entry([&] {
    Simulator* const simulator = Simulator::instance();
    if (simulator == nullptr) {
      return OPSMITH_FAILED;
    }
    *count = simulator->device_count();
    return OPSMITH_OK;
  });
}

opsmith_status device_properties(int index, opsmith_device_properties* properties) {
  return on_device(index, [&](Simulator&, Device& device) {
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "sim accelerator");
#if defined(__x86_64__)
    std::snprintf(properties->architecture, sizeof(properties->architecture), "host x86-64");
#elif defined(__aarch64__)
    std::snprintf(properties->architecture, sizeof(properties->architecture), "host aarch64");
#else
    std::snprintf(properties->architecture, sizeof(properties->architecture), "host");
#endif
    properties->total_memory = device.heap.limit();
    properties->alignment = Heap::kGranule;
    properties->multiprocessors = std::max(1u, std::thread::hardware_concurrency());
    return OPSMITH_OK;
  });
}

opsmith_status device_memory(int index, uint64_t* free_bytes, uint64_t* total_bytes) {
  return on_device(index, [&](Simulator&, Device& device) {
    *total_bytes = device.heap.limit();
    *free_bytes = *total_bytes - device.heap.statistics().live_bytes;
    return OPSMITH_OK;
  });
}

// ---- memory ----

opsmith_status allocate(int index, size_t bytes, void** pointer) {
  return on_device(index, [&](Simulator& simulator, Device& device) {
    if (bytes == 0) {
      return fail(OPSMITH_INVALID_ARGUMENT, "an allocation needs at least one byte");
    }
    return simulator.allocate(device, bytes, pointer);
  });
}

opsmith_status release(int index, void* pointer) {
  return entry([&] {
    Simulator* const simulator = Simulator::instance();
    Device* const device = simulator != nullptr ? simulator->find_device(index) : nullptr;
    if (device == nullptr) {
      return OPSMITH_INVALID_ARGUMENT;
    }
    // A lost device reports itself, yet the memory goes: otherwise each test of a lost device would leak.
    const opsmith_status status = simulator->release(*device, pointer);
    return faults::is_lost(index) ? lost(index) : status;
  });
}

opsmith_status copy(void* destination, int destination_device, const void* source, int source_device,
                    size_t bytes, opsmith_stream stream) {
  return on_stream(stream, [&] {
    Simulator& simulator = *Simulator::instance();  // there is a stream, so there is a simulator
    for (const int device : {destination_device, source_device}) {
      if (device == OPSMITH_HOST) {
        continue;
      }
      if (simulator.find_device(device) == nullptr) {
        return OPSMITH_INVALID_ARGUMENT;
      }
      if (faults::is_lost(device)) {
        return lost(device);
      }
    }
    if (stream->device() != destination_device && stream->device() != source_device) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the stream is of device %d, which takes no part in the copy",
                  stream->device());
    }
    if (bytes == 0) {
      return OPSMITH_OK;
    }
    char* const to = simulator.resolve(destination, destination_device, bytes);
    const char* const from = simulator.resolve(source, source_device, bytes);
    if (to == nullptr || from == nullptr) {
      return OPSMITH_INVALID_ARGUMENT;
    }
    const bool pageable = (destination_device == OPSMITH_HOST && !pinned::contains(destination)) ||
                          (source_device == OPSMITH_HOST && !pinned::contains(source));
    if (pageable && stream->capture() != nullptr) {
      return fail(OPSMITH_FAILED, "the stream is captured, and the host's memory is not pinned");
    }
    const auto task = [=] {
      if (!faults::is_lost(destination_device) && !faults::is_lost(source_device)) {
        std::memmove(to, from, bytes);
      }
    };
    // The caller may reuse pageable memory as soon as this returns, so it has to wait anyway.
    if (pageable) {
      return wait_for(stream, stream->run_or_enqueue("copy", task));
    }
    if (bytes <= kInlineBytes) {
      stream->run_or_enqueue("copy", task);
    } else {
      stream->enqueue("copy", task);
    }
    return OPSMITH_OK;
  });
}

opsmith_status fill(int index, void* destination, uint8_t value, size_t bytes, opsmith_stream stream) {
  return on_device(index, [&](Simulator& simulator, Device&) {
    if (stream == nullptr || stream->device() != index) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the stream is not of device %d", index);
    }
    if (bytes == 0) {
      return OPSMITH_OK;
    }
    char* const to = simulator.resolve(destination, index, bytes);
    if (to == nullptr) {
      return OPSMITH_INVALID_ARGUMENT;
    }
    const auto task = [=] {
      if (!faults::is_lost(index)) {
        std::memset(to, value, bytes);
      }
    };
    if (bytes <= kInlineBytes) {
      stream->run_or_enqueue("fill", task);
    } else {
      stream->enqueue("fill", task);
    }
    return OPSMITH_OK;
  });
}

// ---- streams ----

opsmith_status default_stream(int index, opsmith_stream* stream) {
  return on_device(index, [&](Simulator&, Device& device) {
    *stream = device.default_stream;
    return OPSMITH_OK;
  });
}

// The priority is a hint, which threads of an unprivileged process cannot follow.
opsmith_status stream_create(int index, int /*priority*/, opsmith_stream* stream) {
  return on_device(index, [&](Simulator&, Device&) {
    *stream = new opsmith_stream_s(index);
    return OPSMITH_OK;
  });
}

opsmith_status stream_destroy(opsmith_stream stream) {
  return entry([&] {
    if (stream == nullptr || stream == Simulator::instance()->device(stream->device()).default_stream) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the stream is null or a device's default stream");
    }
    if (stream->is_own_thread()) {
      return fail(OPSMITH_INVALID_ARGUMENT, "a host function may not destroy the stream that it runs on");
    }
    if (stream->capture() != nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the stream is captured");
    }
    const int device = stream->device();
    delete stream;
    return faults::is_lost(device) ? lost(device) : OPSMITH_OK;
  });
}

// OPSMITH_OK, or the failure of work on `stream` that is done.
opsmith_status outcome_of(opsmith_stream stream) {
  return stream->take_failure() ? fail(OPSMITH_FAILED, "work on the stream has failed") : OPSMITH_OK;
}

opsmith_status stream_query(opsmith_stream stream) {
  return on_stream(stream, [&] { return stream->is_idle() ? outcome_of(stream) : OPSMITH_NOT_READY; });
}

opsmith_status stream_synchronize(opsmith_stream stream) {
  return on_stream(stream, [&] {
    const opsmith_status status = wait_for(stream, stream->last_ticket());
    return status == OPSMITH_OK ? outcome_of(stream) : status;
  });
}

opsmith_status stream_host_function(opsmith_stream stream, void (*function)(void*), void* argument) {
  return on_stream(stream, [&] {
    if (function == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the function is null");
    }
    // Never inline: the function may itself queue work on this stream, whose lock an inline task holds.
    stream->enqueue("function", [=] { function(argument); });
    return OPSMITH_OK;
  });
}

// ---- events ----

constexpr const char* kCapturedEvent =
    "the event was recorded on a captured stream: it is a place in a graph, which does not happen";

opsmith_status event_create(int index, int timing, opsmith_event* event) {
  return on_device(index, [&](Simulator&, Device&) {
    *event = new opsmith_event_s(index, timing != 0);
    return OPSMITH_OK;
  });
}

opsmith_status event_destroy(opsmith_event event) {
  return entry([&] {
    delete event;  // a stream that still waits for its record shares that record
    return OPSMITH_OK;
  });
}

opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  return on_event(event, [&] {
    return on_stream(stream, [&] {
      if (event->device != stream->device()) {
        return fail(OPSMITH_INVALID_ARGUMENT, "the event is of device %d, the stream of device %d",
                    event->device, stream->device());
      }
      if (const std::shared_ptr<Capture> capture = stream->capture(); capture != nullptr) {
        CapturedEvent captured{capture, capture->before(stream)};
        const std::lock_guard lock(event->mutex);
        event->captured = std::move(captured);
        return OPSMITH_OK;
      }
      auto record = std::make_shared<Record>();
      {
        const std::lock_guard lock(event->mutex);
        event->record = record;
        event->captured = {};
      }
      stream->mark([record] { record->complete(); });
      return OPSMITH_OK;
    });
  });
}

opsmith_status event_query(opsmith_event event) {
  return on_event(event, [&] {
    if (event->latest_captured().capture != nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, kCapturedEvent);
    }
    const std::shared_ptr<Record> record = event->latest();
    return record == nullptr || record->is_complete() ? OPSMITH_OK : OPSMITH_NOT_READY;
  });
}

opsmith_status event_synchronize(opsmith_event event) {
  return on_event(event, [&] {
    if (event->latest_captured().capture != nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, kCapturedEvent);
    }
    if (const std::shared_ptr<Record> record = event->latest(); record != nullptr) {
      record->wait();
    }
    return OPSMITH_OK;
  });
}

opsmith_status event_elapsed(opsmith_event start, opsmith_event end, double* milliseconds) {
  return on_event(start, [&] {
    return on_event(end, [&] {
      if (!start->timing || !end->timing) {
        return fail(OPSMITH_INVALID_ARGUMENT, "an event was created without timing");
      }
      if (start->device != end->device) {
        return fail(OPSMITH_INVALID_ARGUMENT, "the events are of devices %d and %d", start->device,
                    end->device);
      }
      const std::shared_ptr<Record> from = start->latest();
      const std::shared_ptr<Record> to = end->latest();
      if (from == nullptr || to == nullptr || !from->is_complete() || !to->is_complete()) {
        return fail(OPSMITH_INVALID_ARGUMENT,
                    "an event was not recorded, or its stream has not reached it yet");
      }
      *milliseconds = std::chrono::duration<double, std::milli>(to->time() - from->time()).count();
      return OPSMITH_OK;
    });
  });
}

opsmith_status wait_for_captured(opsmith_stream stream, const CapturedEvent& event) {
  if (event.capture->has_ended()) {
    return fail(OPSMITH_INVALID_ARGUMENT, kCapturedEvent);
  }
  if (stream->device() != event.capture->origin()->device()) {
    return fail(OPSMITH_INVALID_ARGUMENT, "a graph is of one device, and the stream is of device %d",
                stream->device());
  }
  return event.capture->wait(stream, event.before)
             ? OPSMITH_OK
             : fail(OPSMITH_INVALID_ARGUMENT, "the stream is captured for another graph");
}

opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  return on_event(event, [&] {
    return on_stream(stream, [&] {
      if (const CapturedEvent captured = event->latest_captured(); captured.capture != nullptr) {
        return wait_for_captured(stream, captured);
      }
      if (stream->capture() != nullptr) {
        return fail(OPSMITH_INVALID_ARGUMENT,
                    "the stream is captured, and the event was recorded outside of the capture");
      }
      const std::shared_ptr<Record> record = event->latest();
      if (record != nullptr && !record->is_complete()) {
        // A mark, not work: the stream does nothing but wait.
        stream->mark_pending([record] { record->wait(); });
      }
      return OPSMITH_OK;
    });
  });
}

// ---- pinned host memory ----

opsmith_status pinned_allocate(size_t bytes, void** pointer) {
  return entry([&] {
    if (bytes == 0) {
      return fail(OPSMITH_INVALID_ARGUMENT, "an allocation needs at least one byte");
    }
    *pointer = pinned::allocate(bytes);
    return OPSMITH_OK;
  });
}

opsmith_status pinned_release(void* pointer) {
  return entry([&] {
    return pinned::release(pointer)
               ? OPSMITH_OK
               : fail(OPSMITH_INVALID_ARGUMENT, "%p is not the start of live pinned memory", pointer);
  });
}

int pinned_contains(const void* pointer) {
  return pinned::contains(pointer) ? 1 : 0;
}

void* host_window(const void* pointer) {
  const Simulator* const simulator = Simulator::instance();
  return simulator != nullptr ? simulator->window(pointer) : nullptr;
}

// ---- ranges ----

opsmith_status range_push(const char* text) {
  return entry([&] {
    if (text == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the text of a range is null");
    }
    ranges::push(text);
    return OPSMITH_OK;
  });
}

opsmith_status range_pop() {
  return entry([&] {
    return ranges::pop() ? OPSMITH_OK : fail(OPSMITH_INVALID_ARGUMENT, "no range is open in this thread");
  });
}

// ---- memory shared with other processes ----

opsmith_status memory_export(int index, void* pointer, opsmith_memory_handle* handle) {
  return on_device(index, [&](Simulator& simulator, Device& device) {
    return simulator.export_memory(device, pointer, handle);
  });
}

opsmith_status memory_import(int index, const opsmith_memory_handle* handle, void** pointer) {
  return on_device(index, [&](Simulator& simulator, Device& device) {
    return simulator.import_memory(device, *handle, pointer);
  });
}

opsmith_status memory_unimport(int index, void* pointer) {
  return on_device(
      index, [&](Simulator& simulator, Device& device) { return simulator.give_up_import(device, pointer); });
}

// ---- graphs ----

opsmith_status capture_begin(opsmith_stream stream) {
  return on_stream(stream, [&] {
    return Capture::begin(stream) != nullptr
               ? OPSMITH_OK
               : fail(OPSMITH_INVALID_ARGUMENT, "the stream is captured already");
  });
}

opsmith_status capture_end(opsmith_stream stream, opsmith_graph* graph) {
  return entry([&] {
    const std::shared_ptr<Capture> capture = stream != nullptr ? stream->capture() : nullptr;
    if (capture == nullptr || capture->origin() != stream) {
      return fail(OPSMITH_INVALID_ARGUMENT, "no capture has begun on the stream");
    }
    std::unique_ptr<opsmith_graph_s> made = capture->end(stream);
    if (faults::is_lost(stream->device())) {
      return lost(stream->device());
    }
    if (made == nullptr) {
      return fail(OPSMITH_FAILED,
                  "other streams have recorded work that the captured stream does not wait for");
    }
    *graph = made.release();
    return OPSMITH_OK;
  });
}

opsmith_status stream_is_captured(opsmith_stream stream, int* is_captured) {
  return on_stream(stream, [&] {
    *is_captured = stream->capture() != nullptr ? 1 : 0;
    return OPSMITH_OK;
  });
}

opsmith_status graph_launch(opsmith_graph graph, opsmith_stream stream) {
  return on_stream(stream, [&] {
    if (graph == nullptr || graph->device != stream->device()) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the graph is null or of another device than the stream");
    }
    stream->enqueue("graph", [tasks = graph->tasks] {
      for (const RecordedTask& task : *tasks) {
        task.run();
      }
    });
    return OPSMITH_OK;
  });
}

opsmith_status graph_destroy(opsmith_graph graph) {
  return entry([&] {
    delete graph;
    return OPSMITH_OK;
  });
}

opsmith_status graph_dump(opsmith_graph graph, const char* path) {
  return entry([&] {
    if (graph == nullptr || path == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "the graph or the path is null");
    }
    dump(*graph, path);
    return OPSMITH_OK;
  });
}

// `kEntry`, but for the calls that are to fail.
template <auto kEntry, size_t kNumber>
struct Faulty;
template <class... Arguments, opsmith_status (*kEntry)(Arguments...), size_t kNumber>
struct Faulty<kEntry, kNumber> {
  static opsmith_status call(Arguments... arguments) {
    if (faults::take(kNumber)) {
      constexpr std::string_view kName = faults::kEntries[kNumber];
      return fail(kName == "allocate" ? OPSMITH_OUT_OF_MEMORY : OPSMITH_FAILED, "injected fault: %s",
                  kName.data());
    }
    return kEntry(arguments...);
  }
};
template <auto kEntry, size_t kNumber>
constexpr auto kFaulty = &Faulty<kEntry, kNumber>::call;

#define OR_FAULT(entry) .entry = kFaulty<entry, faults::entry_number(#entry)>

constexpr opsmith_driver kTable = {
    .abi_version = OPSMITH_DRIVER_ABI_VERSION,
    .struct_size = sizeof(opsmith_driver),
    .name = "sim",
    .last_error = last_error,
    .device_count = device_count,
    OR_FAULT(device_properties),
    OR_FAULT(device_memory),
    OR_FAULT(allocate),
    OR_FAULT(release),
    OR_FAULT(copy),
    OR_FAULT(fill),
    OR_FAULT(default_stream),
    OR_FAULT(stream_create),
    OR_FAULT(stream_destroy),
    OR_FAULT(stream_query),
    OR_FAULT(stream_synchronize),
    OR_FAULT(stream_host_function),
    OR_FAULT(event_create),
    OR_FAULT(event_destroy),
    OR_FAULT(event_record),
    OR_FAULT(event_query),
    OR_FAULT(event_synchronize),
    OR_FAULT(event_elapsed),
    OR_FAULT(stream_wait_event),
    OR_FAULT(pinned_allocate),
    OR_FAULT(pinned_release),
    .pinned_contains = pinned_contains,
    .host_window = host_window,
    OR_FAULT(range_push),
    OR_FAULT(range_pop),
    OR_FAULT(memory_export),
    OR_FAULT(memory_import),
    OR_FAULT(memory_unimport),
    OR_FAULT(capture_begin),
    OR_FAULT(capture_end),
    OR_FAULT(stream_is_captured),
    OR_FAULT(graph_launch),
    OR_FAULT(graph_destroy),
    OR_FAULT(graph_dump),
};

#undef OR_FAULT

}  // namespace
}  // namespace sim

extern "C" {

__attribute__((visibility("default"))) const opsmith_driver* opsmith_get_driver(void) {
  return &sim::kTable;
}

__attribute__((visibility("default"))) opsmith_status opsmith_launch_failing_work(opsmith_stream stream) {
  stream->enqueue_failing();
  return OPSMITH_OK;
}

__attribute__((visibility("default"))) int opsmith_sim_statistics(int device,
                                                                  opsmith_sim_device_statistics* statistics) {
  sim::Simulator* const simulator = sim::Simulator::instance();
  sim::Device* const found = simulator != nullptr ? simulator->find_device(device) : nullptr;
  if (found == nullptr) {
    return 1;
  }
  const sim::Heap::Statistics heap = found->heap.statistics();
  const sim::StreamCounts streams = sim::stream_counts(device);
  *statistics = {.allocations = heap.allocations,
                 .releases = heap.releases,
                 .live_bytes = heap.live_bytes,
                 .peak_bytes = heap.peak_bytes,
                 .kept_bytes = heap.kept_bytes,
                 .streams = streams.streams,
                 .threads = streams.threads,
                 .pinned = sim::pinned::live_allocations()};
  return 0;
}

}  // extern "C"
