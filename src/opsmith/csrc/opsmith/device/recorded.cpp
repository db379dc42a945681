// See recorded.h; and the random numbers of a graph's work (opsmith/random_numbers.h).
#include <opsmith/device/recorded.h>

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/device_work.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/launched_last.h>
#include <opsmith/device/memory_pool.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/host_access.h>
#include <opsmith/random_numbers.h>

namespace opsmith {

namespace {

void check_can_capture() {
  const caching::Settings& settings = allocator_settings();
  TORCH_CHECK(settings.cache && !settings.debug, "a graph cannot be captured while OPSMITH_ALLOC_CONF says ",
              settings.debug ? "debug:True" : "cache:False",
              ": its memory is kept by the cache. Leave that out.");
}

}  // namespace

PhiloxDraw::PhiloxDraw(const std::shared_ptr<PhiloxState>& state, uint64_t count, c10::DeviceIndex device) {
  const auto capture =
      current_stream_is_captured(device) ? std::static_pointer_cast<Recorded>(Capture::current()) : nullptr;
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

Recorded::Recorded(c10::DeviceIndex device, opsmith_stream stream, uint64_t pool)
    : device_(device), stream_(stream), pool_(pool) {
  hold_pool(device, pool);
}

std::shared_ptr<Recorded> Recorded::begin(uint64_t pool) {
  check_can_capture();
  const c10::DeviceIndex device = current_device();
  const opsmith_stream stream = current_stream(device);
  const std::shared_ptr<Recorded> made(new Recorded(device, stream, pool));
  set_current(made);
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
  return forget() ? detail::loaded_driver->capture_end(stream_, &graph_) : OPSMITH_OK;
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
