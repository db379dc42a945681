// See recorded_work.h.
#include <opsmith/profile/recorded_work.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/host_access.h>
#include <opsmith/profile/moment.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

namespace opsmith::profile {

// A piece of the device's work. The host's clock times `begin` and `end`, the device's `from` and `to`.
struct Work {
  std::string name;
  Kind kind = Kind::kKernel;
  c10::DeviceIndex device = 0;
  int64_t stream = 0;
  uint64_t called_by = 0;
  uint64_t range = 0;
  int32_t thread = 0;
  uint64_t bytes = 0;
  int64_t recording = 0;  // the number of the recording that it belongs to
  c10::approx_time_t launched = 0;
  c10::approx_time_t begin = 0;
  c10::approx_time_t end = 0;
  std::optional<Moment> from;
  std::optional<Moment> to;
  Work* outer = nullptr;  // the thread's innermost() before it began
};

namespace {

using WorkPtr = std::unique_ptr<Work>;

// A reading of both clocks: the device's was at `moment` when the host's was at `ticks`.
struct Anchor {
  Moment moment;
  c10::approx_time_t ticks;
};

using Anchors = std::map<c10::DeviceIndex, Anchor>;
using Nanoseconds = std::function<c10::time_t(c10::approx_time_t)>;

// Throws what the driver's failures are.
void set_times(Event& event, const Work& work, const Anchors& anchors, const Nanoseconds& nanoseconds) {
  if (!work.from.has_value()) {
    event.start = nanoseconds(work.begin);
    event.end = nanoseconds(work.end);
    return;
  }
  const auto found = anchors.find(work.device);
  TORCH_CHECK(found != anchors.end(), "the profile began while it was launched");
  const Anchor& anchor = found->second;
  const auto since_anchor = static_cast<int64_t>(anchor.moment.until(*work.from) * 1000);
  // The clocks are set by each other to some microseconds: nothing starts before it is launched.
  event.start = std::max(event.launched, nanoseconds(anchor.ticks) + since_anchor);
  event.end = event.start + static_cast<int64_t>(work.from->until(*work.to) * 1000);
}

class Recording {
 public:
  int64_t number() const { return number_.load(std::memory_order_relaxed); }

  void start() {
    Recorded earlier;
    const std::lock_guard lock(mutex_);
    std::swap(earlier, recorded_);
    recorded_.clock.emplace();
    number_.fetch_add(1, std::memory_order_relaxed);
    detail::is_recording.store(true, std::memory_order_relaxed);
  }

  void stop() {
    for (const c10::DeviceIndex device : devices()) {
      try {
        synchronize_device(device);
      } catch (const c10::Error& error) {
        report(error.what_without_backtrace());
      }
    }
    detail::is_recording.store(false, std::memory_order_relaxed);
  }

  void add(WorkPtr work) {
    const std::lock_guard lock(mutex_);
    if (work->recording == number() && recorded_.clock.has_value()) {
      recorded_.finished.push_back(std::move(work));
    }
  }

  void use(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    recorded_.devices.insert(device);
  }

  // Of the thread's current stream, before anything on `device` is timed by its events.
  void anchor(c10::DeviceIndex device) {
    {
      const std::lock_guard lock(mutex_);
      if (recorded_.anchors.contains(device)) {
        return;
      }
    }
    // Without the lock: a driver in Python waits for the interpreter's.
    synchronize_stream(current_stream(device), device);
    const c10::approx_time_t before = c10::getApproximateTime();
    Moment moment(device);
    moment.wait();
    const c10::approx_time_t after = c10::getApproximateTime();
    Anchor anchor{std::move(moment), before + (after - before) / 2};
    const std::lock_guard lock(mutex_);
    recorded_.anchors.try_emplace(device, std::move(anchor));
  }

  void report(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    recorded_.problems.insert(problem);
  }

  std::vector<Event> take(std::vector<std::string>& problems);

 private:
  // Destroyed without the lock: it holds events, and a driver in Python that destroys one waits for the
  // interpreter's.
  struct Recorded {
    std::optional<c10::ApproximateClockToUnixTimeConverter> clock;  // none: nothing is recorded
    std::vector<WorkPtr> finished;
    Anchors anchors;
    std::set<c10::DeviceIndex> devices;
    std::set<std::string> problems;
  };

  std::set<c10::DeviceIndex> devices() {
    const std::lock_guard lock(mutex_);
    return recorded_.devices;
  }

  std::mutex mutex_;
  std::atomic<int64_t> number_{0};
  Recorded recorded_;
};

Recording& recording() {
  static auto* const one = new Recording();  // never destroyed: threads may still launch at exit
  return *one;
}

// The numbers that the profiler has pushed in this thread.
struct ThreadScopes {
  int64_t recording = 0;
  std::array<std::vector<uint64_t>, 2> numbers;

  std::vector<uint64_t>& of(Scope scope) { return numbers[static_cast<size_t>(scope)]; }
  uint64_t innermost(Scope scope) { return of(scope).empty() ? 0 : of(scope).back(); }
};

ThreadScopes& thread_scopes() {
  thread_local ThreadScopes scopes;
  const int64_t now = recording().number();
  if (scopes.recording != now) {
    scopes.recording = now;
    for (auto& numbers : scopes.numbers) {
      numbers.clear();
    }
  }
  return scopes;
}

// The work that this thread is doing, or queueing.
constinit thread_local Work* current_work = nullptr;

WorkPtr new_work(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes) {
  thread_local const auto thread = static_cast<int32_t>(syscall(SYS_gettid));
  ThreadScopes& scopes = thread_scopes();
  WorkPtr work(new Work);
  work->name = name;
  work->kind = kind;
  work->device = device;
  work->stream = current_stream_id(device);
  work->called_by = scopes.innermost(Scope::kOperator);
  work->range = scopes.innermost(Scope::kRange);
  work->thread = thread;
  work->bytes = bytes;
  work->recording = recording().number();
  recording().use(device);
  work->launched = c10::getApproximateTime();
  return work;
}

void enter_work(Work& work) noexcept {
  work.outer = current_work;
  if (!is_of_host(work.kind)) {
    current_work = &work;
  }
}

void leave_work(const Work& work) noexcept {
  current_work = work.outer;
}

// Where nothing may be raised.
template <class Action>
void quietly(const Action& action) noexcept {
  try {
    try {
      action();
    } catch (const c10::Error& error) {
      recording().report(error.what_without_backtrace());
    }
  } catch (const std::exception&) {  // out of memory: then something else fails soon
  }
}

std::vector<Event> Recording::take(std::vector<std::string>& problems) {
  Recorded all;
  {
    const std::lock_guard lock(mutex_);
    std::swap(all, recorded_);
  }
  std::vector<Event> events;
  if (!all.clock.has_value()) {
    return events;
  }
  const auto nanoseconds = all.clock->makeConverter();
  events.reserve(all.finished.size());
  for (const WorkPtr& work : all.finished) {
    Event event{.name = work->name,
                .kind = work->kind,
                .device = work->device,
                .stream = work->stream,
                .called_by = work->called_by,
                .range = work->range,
                .thread = work->thread,
                .launched = nanoseconds(work->launched),
                .bytes = work->bytes};
    try {
      set_times(event, *work, all.anchors, nanoseconds);
      events.push_back(std::move(event));
    } catch (const c10::Error& error) {
      all.problems.insert(error.what_without_backtrace());
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.start < b.start; });
  problems.assign(all.problems.begin(), all.problems.end());
  return events;
}

// Not what is part of other work, nor what is recorded for a graph: that does not run.
bool is_seen(const char* name, c10::DeviceIndex device) {
  return current_work == nullptr && name != nullptr && !current_stream_is_captured(device);
}

Work* launch(const char* name, c10::DeviceIndex device) {
  return is_seen(name, device) ? new_work(name, device, Kind::kKernel, 0).release() : nullptr;
}

void begin(Work& work) noexcept {
  enter_work(work);
  work.begin = c10::getApproximateTime();
}

Work* begin_on_host(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes) {
  if (!is_seen(name, device)) {
    return nullptr;
  }
  wait_for_device(device);
  Work* const work = new_work(name, device, kind, bytes).release();
  begin(*work);
  return work;
}

Work* begin_on_stream(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes) {
  if (!is_seen(name, device)) {
    return nullptr;
  }
  recording().anchor(device);
  WorkPtr work = new_work(name, device, kind, bytes);
  work->from.emplace(device);
  enter_work(*work);
  return work.release();
}

std::pair<Work*, bool> begin_fallback(const std::string& operator_name, c10::DeviceIndex device) {
  if (current_work == nullptr) {
    Work* const work = begin_on_host(operator_name.c_str(), device, Kind::kFallback, 0);
    return {work, work != nullptr};
  }
  if (current_work->name != operator_name) {
    return {nullptr, false};
  }
  current_work->kind = Kind::kFallback;
  return {current_work, false};
}

void set_bytes(Work& work, uint64_t bytes) noexcept {
  work.bytes = bytes;
}

void end(Work* work) noexcept {
  WorkPtr owned(work);
  if (work->from.has_value()) {
    quietly([&] { work->to.emplace(work->device); });
  } else {
    work->end = c10::getApproximateTime();
  }
  leave_work(*work);
  if (work->from.has_value() == work->to.has_value()) {
    quietly([&] { recording().add(std::move(owned)); });
  }
}

void drop(Work* work) noexcept {
  delete work;
}

constexpr WorkObserver kObserver{.launch = launch,
                                 .begin = begin,
                                 .begin_on_host = begin_on_host,
                                 .begin_on_stream = begin_on_stream,
                                 .begin_fallback = begin_fallback,
                                 .set_bytes = set_bytes,
                                 .end = end,
                                 .drop = drop};

[[maybe_unused]] const bool is_observing = [] {
  observe_work(kObserver);
  return true;
}();

}  // namespace

void enter(Scope scope, uint64_t number) {
  thread_scopes().of(scope).push_back(number);
}

void leave(Scope scope) noexcept {
  auto& numbers = thread_scopes().of(scope);
  if (!numbers.empty()) {  // else the recording began inside
    numbers.pop_back();
  }
}

void start_recording() {
  recording().start();
}

void stop_recording() {
  recording().stop();
}

std::vector<Event> recorded(std::vector<std::string>& problems) {
  return recording().take(problems);
}

}  // namespace opsmith::profile
