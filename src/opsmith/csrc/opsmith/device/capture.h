// Captures: work of a stream that is recorded for a graph (graph.h) in the place of being run. One at a time
// in the process; the streams that take part are the driver's to know.
//
// Work that cannot be recorded is refused: waiting for the device, and work that the host does at once. A
// refusal ends the capture, so that the device is usable afterwards.
#pragma once

#include <opsmith_driver.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

// A graph while it is captured.
class Capture {
 public:
  virtual ~Capture() = default;

  // That which is under way; null for none.
  static std::shared_ptr<Capture> current();

  // Ends it, for good.
  virtual void refuse(std::string why) noexcept = 0;
  virtual void keep(std::shared_ptr<void> memory) = 0;
  // That of the allocator which its memory belongs to.
  virtual uint64_t pool() const = 0;

 protected:
  // Throws c10::Error where another one is under way.
  static void set_current(std::shared_ptr<Capture> capture);
  // Whether it was under way.
  bool forget() noexcept;
};

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

// The graph that is captured keeps `memory`, which its work uses.
void keep_for_graph(std::shared_ptr<void> memory);

// The pool of the allocator that memory for `stream` belongs to: 0, if it is not captured.
uint64_t pool_for(opsmith_stream stream) noexcept;

}  // namespace opsmith
