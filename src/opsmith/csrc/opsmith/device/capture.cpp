// See capture.h.
#include <opsmith/device/capture.h>

#include <mutex>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>

namespace opsmith {

namespace {

// The capture that is under way. Recursive: what ends a capture releases memory, and so asks.
std::recursive_mutex capture_mutex;
std::shared_ptr<Capture> under_way;

}  // namespace

std::shared_ptr<Capture> Capture::current() {
  const std::lock_guard lock(capture_mutex);
  return under_way;
}

void Capture::set_current(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(capture_mutex);
  TORCH_CHECK(under_way == nullptr,
              "a graph is being captured already, and a process captures one at a time");
  under_way = std::move(capture);
}

bool Capture::forget() noexcept {
  const std::lock_guard lock(capture_mutex);
  if (under_way.get() != this) {
    return false;
  }
  under_way = nullptr;
  detail::something_is_captured.store(false, std::memory_order_relaxed);
  return true;
}

namespace detail {

std::atomic<bool> something_is_captured = false;

bool is_captured(opsmith_stream stream) noexcept {
  int answer = 0;
  return loaded_driver != nullptr && loaded_driver->stream_is_captured(stream, &answer) == OPSMITH_OK &&
         answer != 0;
}

bool current_stream_is_captured(c10::DeviceIndex device) {
  return is_captured(current_stream(device));
}

}  // namespace detail

void refuse_capture(const std::string& what, const std::string& why, c10::DeviceIndex device) {
  const std::string text =
      c10::str(what, " cannot be recorded in a graph on ", c10::Device(c10::kPrivateUse1, device), ": ", why,
               ". The capture has ended; do this outside of it.");
  if (const std::shared_ptr<Capture> capture = Capture::current()) {
    capture->refuse(text);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, text);
}

void keep_for_graph(std::shared_ptr<void> memory) {
  if (const std::shared_ptr<Capture> capture = Capture::current()) {
    capture->keep(std::move(memory));
  }
}

uint64_t pool_for(opsmith_stream stream) noexcept {
  if (C10_LIKELY(!is_captured(stream))) {
    return 0;
  }
  const std::shared_ptr<Capture> capture = Capture::current();
  return capture != nullptr ? capture->pool() : 0;
}

}  // namespace opsmith
