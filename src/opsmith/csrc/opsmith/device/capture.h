// Captures: work of a stream that is recorded for a graph (graph.h) in the place of being run. One at a time
// in the process; the streams that take part are the driver's to know.
//
// Work that cannot be recorded is refused: waiting for the device, and work that the host does at once. A
// refusal ends the capture, so that the device is usable afterwards.
#pragma once

#include <opsmith_driver.h>

#include <atomic>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

class QueuedWork;

namespace detail {
extern std::atomic<bool> something_is_captured;
bool is_captured(opsmith_stream stream) noexcept;
bool current_stream_is_captured(c10::DeviceIndex device);
}  // namespace detail

// Whether what is queued on `stream` is recorded.
inline bool is_captured(opsmith_stream stream) noexcept {
  return C10_UNLIKELY(detail::something_is_captured.load(std::memory_order_relaxed)) &&
         detail::is_captured(stream);
}

// Whether what this thread queues on `device` is.
inline bool current_stream_is_captured(c10::DeviceIndex device) {
  return C10_UNLIKELY(detail::something_is_captured.load(std::memory_order_relaxed)) &&
         detail::current_stream_is_captured(device);
}

// Ends the capture, and throws NotImplementedError: `what`, like "aten::item", cannot be recorded, and `why`.
[[noreturn]] void refuse_capture(const std::string& what, const std::string& why, c10::DeviceIndex device);

// Throws so where the current stream of `device` is captured.
inline void refuse_if_captured(const char* what, const char* why, c10::DeviceIndex device) {
  if (current_stream_is_captured(device)) {
    refuse_capture(what, why, device);
  }
}

// Records `work` on its stream, which is captured; the graph keeps it and runs it often.
void record_on_host(std::unique_ptr<QueuedWork> work, opsmith_stream stream, c10::DeviceIndex device);

// The graph that is captured keeps `memory`, which its work uses.
void keep_for_graph(std::shared_ptr<void> memory);

// Host memory for recorded work, which the graph keeps; pinned.
void* graph_memory(size_t bytes, c10::DeviceIndex device);

// The pool of the allocator that memory for `stream` belongs to: 0, if it is not captured.
uint64_t pool_for(opsmith_stream stream) noexcept;

}  // namespace opsmith
