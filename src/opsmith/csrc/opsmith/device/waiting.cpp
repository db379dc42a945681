// See waiting.h.
#include <opsmith/device/waiting.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/device/stream.h>
#include <opsmith/host_access.h>

namespace opsmith {

namespace {

using Clock = std::chrono::steady_clock;

std::chrono::duration<double> time_limit{};

double limit_asked_for() {
  const char* const text = std::getenv("OPSMITH_SYNCHRONIZE_TIMEOUT");
  const std::string setting = text != nullptr ? text : "";
  if (setting.empty()) {
    return 0;
  }
  char* end = nullptr;
  const double seconds = std::strtod(setting.c_str(), &end);
  TORCH_CHECK(
      *end == '\0' && seconds > 0, "OPSMITH_SYNCHRONIZE_TIMEOUT is `", setting,
      "`\n  remedy: give the seconds that the host waits for a stream at most, like 30 or 0.5; without "
      "it the host waits as long as it takes");
  return seconds;
}

struct Kernel {
  const char* operator_name;
  CallingLine line;
};

// The kernels of a stream, as far as they are known.
struct Doing {
  std::optional<Kernel> runs;
  std::optional<Kernel> launched_last;
};

std::mutex doing_mutex;
std::map<opsmith_stream, Doing> doing;

std::string what_is_done(opsmith_stream stream) {
  Doing known;
  {
    const std::lock_guard lock(doing_mutex);
    known = doing[stream];
  }
  const std::optional<Kernel>& kernel = known.runs.has_value() ? known.runs : known.launched_last;
  if (!kernel.has_value()) {
    return "No kernel is known to run there";
  }
  return c10::str(known.runs.has_value() ? "It runs " : "The last kernel launched there is that of ",
                  kernel->operator_name, ", called at ", kernel->line.text());
}

// `what` was waited for, and `doing` is a sentence on what kept it.
[[noreturn]] void throw_too_long(const std::string& what, const std::string& doing, c10::DeviceIndex device) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(
      here, OPSMITH_NOT_READY,
      c10::str(c10::Device(c10::kPrivateUse1, device), ": ", what, " was not done within ",
               time_limit.count(), " s (OPSMITH_SYNCHRONIZE_TIMEOUT). ", doing,
               ". A kernel that never ends, or a device that hangs: end the process, or give it more time."));
}

// Asks `query` until it says something else than that work is pending; OPSMITH_NOT_READY when the time is
// over.
template <class Query>
opsmith_status asked_within_limit(const Query& query) {
  const Clock::time_point last = Clock::now() + std::chrono::duration_cast<Clock::duration>(time_limit);
  std::chrono::microseconds pause{10};
  for (;;) {
    const opsmith_status status = query();
    if (status != OPSMITH_NOT_READY || Clock::now() > last) {
      return status;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds{1000});
  }
}

}  // namespace

namespace detail {

bool waits_are_limited = false;

void note_launch(const char* operator_name, c10::DeviceIndex device) {
  const opsmith_stream stream = current_stream(device);
  Kernel kernel{operator_name, CallingLine::here()};
  const std::lock_guard lock(doing_mutex);
  doing[stream].launched_last = std::move(kernel);
}

}  // namespace detail

void prepare_waiting() {
  time_limit = std::chrono::duration<double>(limit_asked_for());
  detail::waits_are_limited = time_limit.count() > 0;
}

void wait_for_stream(opsmith_stream stream, c10::DeviceIndex device, const char* action) {
  if (is_captured(stream)) {
    refuse_capture(c10::str("to ", action), "that waits for what does not run yet", device);
  }
  if (C10_LIKELY(!waits_are_limited())) {
    return check_wait(driver().stream_synchronize(stream), action, device);
  }
  const opsmith_status status = asked_within_limit([stream] { return driver().stream_query(stream); });
  if (status == OPSMITH_NOT_READY) {
    throw_too_long(c10::str("stream ", stream_id(stream, device)), what_is_done(stream), device);
  }
  check_wait(status, action, device);
}

void wait_for_event(opsmith_event event, c10::DeviceIndex device, const char* action) {
  if (C10_LIKELY(!waits_are_limited())) {
    return check_wait(driver().event_synchronize(event), action, device);
  }
  const opsmith_status status = asked_within_limit([event] { return driver().event_query(event); });
  if (status == OPSMITH_NOT_READY) {
    throw_too_long("what an event was recorded after", "Synchronise its stream to be told what that does",
                   device);
  }
  check_wait(status, action, device);
}

void synchronize_stream(opsmith_stream stream, c10::DeviceIndex device) {
  const opsmith_status status = driver().stream_query(stream);
  if (status == OPSMITH_NOT_READY) {
    wait_for_stream(stream, device, "synchronise a stream");
  } else {
    check_wait(status, "synchronise a stream", device);
  }
  raise_late_failure();
}

thread_local bool WaitsForWantOfEvents::is_on = false;

void finish_stream(opsmith_stream stream, c10::DeviceIndex device) noexcept {
  if (C10_UNLIKELY(detail::loaded_driver->stream_query(stream) != OPSMITH_OK && !is_captured(stream))) {
    finish([stream] { return detail::loaded_driver->stream_synchronize(stream); }, device);
  }
}

void synchronize_device(c10::DeviceIndex device) {
  device = checked_device(device);
  driver();  // an error after a fork, even if no stream was made
  each_stream(device, [device](opsmith_stream stream) { synchronize_stream(stream, device); });
}

void finish_device(c10::DeviceIndex device) noexcept {
  each_stream(device, [device](opsmith_stream stream) { finish_stream(stream, device); });
}

void wait_for_device(c10::DeviceIndex device) {
  const opsmith_stream stream = current_stream(device);
  if (C10_UNLIKELY(driver().stream_query(stream) != OPSMITH_OK)) {
    wait_for_stream(stream, device, "synchronise the current stream");
  }
  raise_late_failure();
}

NotedRun::NotedRun(opsmith_stream stream, const char* operator_name, const CallingLine& line)
    : stream_(stream) {
  if (C10_UNLIKELY(waits_are_limited())) {
    const std::lock_guard lock(doing_mutex);
    doing[stream].runs = {operator_name, line};
  }
}

NotedRun::~NotedRun() {
  if (C10_UNLIKELY(waits_are_limited())) {
    const std::lock_guard lock(doing_mutex);
    doing[stream_].runs.reset();
  }
}

}  // namespace opsmith
