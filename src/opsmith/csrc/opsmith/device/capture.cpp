// See capture.h and recorded.h.
#include <opsmith/device/capture.h>

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/device/memory_pool.h>
#include <opsmith/device/pinned.h>
#include <opsmith/device/recorded.h>
#include <opsmith/device/stream.h>
#include <opsmith/host_access.h>
#include <opsmith/random_numbers.h>
#include <opsmith/device/device_work.h>

namespace opsmith {

namespace {

// The capture that is under way. Recursive: what ends a capture releases memory, and so asks.
std::recursive_mutex capture_mutex;
std::shared_ptr<Recorded> under_way;

std::shared_ptr<Recorded> current_capture() {
  const std::lock_guard lock(capture_mutex);
  return under_way;
}

bool forget(const Recorded* capture) noexcept {
  const std::lock_guard lock(capture_mutex);
  if (under_way.get() != capture) {
    return false;
  }
  under_way = nullptr;
  detail::something_is_captured.store(false, std::memory_order_relaxed);
  return true;
}

void check_can_capture() {
  const caching::Settings& settings = allocator_settings();
  TORCH_CHECK(settings.cache && !settings.debug, "a graph cannot be captured while OPSMITH_ALLOC_CONF says ",
              settings.debug ? "debug:True" : "cache:False",
              ": its memory is kept by the cache. Leave that out.");
}

}  // namespace

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
  if (const std::shared_ptr<Recorded> capture = current_capture()) {
    capture->refuse(text);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, text);
}

void record_on_host(std::unique_ptr<QueuedWork> work, opsmith_stream stream, c10::DeviceIndex device) {
  const auto run = [](void* given) { static_cast<QueuedWork*>(given)->run_queued(); };
  const std::shared_ptr<Recorded> capture = current_capture();
  TORCH_CHECK(capture != nullptr, "the stream is captured by somebody else than torch.accelerator.Graph");
  if (driver().stream_host_function == nullptr) {
    refuse_capture(work->operator_name(),
                   "it runs on the host, and the driver has no entry `stream_host_function`", device);
  }
  check(driver().stream_host_function(stream, run, work.get()), "record a kernel", device);
  capture->add(std::move(work));
}

void keep_for_graph(std::shared_ptr<void> memory) {
  if (const std::shared_ptr<Recorded> capture = current_capture()) {
    capture->keep(std::move(memory));
  }
}

void* graph_memory(size_t bytes, c10::DeviceIndex device) {
  if (driver().pinned_allocate == nullptr) {
    refuse_capture("a kernel on copies", "the driver has no pinned memory, through which they travel",
                   device);
  }
  auto memory = std::make_shared<c10::DataPtr>(pinned_allocator().allocate(bytes));
  void* const data = memory->get();
  keep_for_graph(std::move(memory));
  return data;
}

uint64_t pool_for(opsmith_stream stream) noexcept {
  if (C10_LIKELY(!is_captured(stream))) {
    return 0;
  }
  const std::shared_ptr<Recorded> capture = current_capture();
  return capture != nullptr ? capture->pool() : 0;
}

PhiloxDraw::PhiloxDraw(const std::shared_ptr<PhiloxState>& state, uint64_t count, c10::DeviceIndex device) {
  const std::shared_ptr<Recorded> capture = current_stream_is_captured(device) ? current_capture() : nullptr;
  if (C10_LIKELY(capture == nullptr)) {
    taken_ = state->take(count);
    return;
  }
  RecordedDraws& draws = capture->draws_of(state);
  first_of_run_ = draws.first;
  taken_.offset = draws.count;
  draws.count += rounded_draw(count);
}

PhiloxNumbers PhiloxDraw::numbers() const {
  return first_of_run_ == nullptr ? taken_
                                  : PhiloxNumbers{first_of_run_->seed, first_of_run_->offset + taken_.offset};
}

// ---- Recorded ----

Recorded::Recorded(c10::DeviceIndex device, opsmith_stream stream, uint64_t pool)
    : device_(device), stream_(stream), pool_(pool) {
  hold_pool(device, pool);
}

std::shared_ptr<Recorded> Recorded::begin(uint64_t pool) {
  check_can_capture();
  const c10::DeviceIndex device = current_device();
  const opsmith_stream stream = current_stream(device);
  const std::shared_ptr<Recorded> made(new Recorded(device, stream, pool));
  {
    const std::lock_guard lock(capture_mutex);
    TORCH_CHECK(under_way == nullptr,
                "a graph is being captured already, and a process captures one at a time");
    under_way = made;
  }
  // Without the lock: a driver in Python waits for the interpreter's.
  try {
    synchronize_stream(stream, device);
    detail::something_is_captured.store(true, std::memory_order_relaxed);
    check(driver().capture_begin(stream), "begin to capture a graph", device);
  } catch (const c10::Error& error) {
    made->refuse(error.what_without_backtrace());
    throw;
  }
  return made;
}

opsmith_status Recorded::end_of_driver() noexcept {
  return forget(this) ? detail::loaded_driver->capture_end(stream_, &graph_) : OPSMITH_OK;
}

void Recorded::end() {
  const opsmith_status status = end_of_driver();
  TORCH_CHECK(refusal_.empty(), "nothing was captured: ", refusal_);
  check(status, "capture a graph", device_);
  checked_result(graph_, "capture_end", device_);
}

void Recorded::refuse(std::string why) noexcept {
  refusal_ = std::move(why);
  end_of_driver();
}

Recorded::~Recorded() {
  if (detail::loaded_driver == nullptr) {
    return;  // in a forked child: nothing of this is ours
  }
  end_of_driver();
  for (const opsmith_stream stream : launched_on_) {
    finish_stream(stream, device_);
  }
  if (graph_ != nullptr) {
    detail::loaded_driver->graph_destroy(graph_);
  }
  works_.clear();
  kept_.clear();
  release_pool(device_, pool_);
}

RecordedDraws& Recorded::draws_of(const std::shared_ptr<PhiloxState>& state) {
  for (RecordedDraws& draws : draws_) {
    if (draws.state == state) {
      return draws;
    }
  }
  return draws_.emplace_back(RecordedDraws{state, std::make_shared<PhiloxNumbers>()});
}

void Recorded::replay() {
  struct Beginning {
    std::shared_ptr<PhiloxNumbers> first;
    PhiloxNumbers numbers;
  };
  const auto begin_run = [](void* given) {
    const std::unique_ptr<Beginning> beginning(static_cast<Beginning*>(given));
    *beginning->first = beginning->numbers;
  };
  const opsmith_stream stream = current_stream(device_);
  refuse_if_captured("the replay of a graph", "graphs hold no graphs", device_);
  {
    const std::lock_guard lock(launching_);
    if (std::find(launched_on_.begin(), launched_on_.end(), stream) == launched_on_.end()) {
      launched_on_.push_back(stream);
    }
    for (const RecordedDraws& draws : draws_) {
      auto beginning = std::make_unique<Beginning>(Beginning{draws.first, draws.state->take(draws.count)});
      const opsmith_status status = driver().stream_host_function(stream, begin_run, beginning.get());
      if (status == OPSMITH_OK) {
        (void)beginning.release();
      }
      check(status, "replay a graph", device_);
    }
    const profile::StreamWork work("graph", device_);
    check(driver().graph_launch(graph_, stream), "replay a graph", device_);
  }
  if (launches_block()) {
    wait_for_device(device_);
  }
}

void Recorded::dump(const std::string& path) const {
  check(driver().graph_dump(graph_, path.c_str()), "write a graph to a file", device_);
}

}  // namespace opsmith
