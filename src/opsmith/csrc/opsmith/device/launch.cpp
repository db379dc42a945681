// See launch.h.
#include <opsmith/device/launch.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <opsmith/device/device.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/device/stream_threads.h>

namespace opsmith {

namespace {

// Of queueing. One that never ends: a driver without host functions, OPSMITH_LAUNCH_BLOCKING, the process's
// end.
std::atomic<int> queueing_pauses = 0;

void pause_queueing(int by) {
  const int now = queueing_pauses.fetch_add(by) + by;
  detail::may_queue.store(now == 0, std::memory_order_relaxed);
}

// OPSMITH_LAUNCH_BLOCKING=0.
bool always_queues = false;

std::string_view blocking_setting() {
  const char* const text = std::getenv("OPSMITH_LAUNCH_BLOCKING");
  const std::string_view setting = text != nullptr ? text : "";
  TORCH_CHECK(
      setting.empty() || setting == "0" || setting == "1", "OPSMITH_LAUNCH_BLOCKING is `", setting,
      "`\n  remedy: say 1 to have every kernel done before its call returns, 0 to have kernels queued "
      "on a machine without a core to spare too, or nothing");
  return setting;
}

// Before the process takes down what kernels need, threads among it.
void finish_queued_work() {
  pause_queueing(1);
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    try {
      synchronize_device(device);
    } catch (const std::exception&) {  // nobody waits for this any more
    }
  }
}

}  // namespace

namespace detail {

bool queueing_pays() {
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return always_queues || static_cast<unsigned>(at::get_num_threads()) < cores;
}

std::atomic<bool> may_queue = true;

}  // namespace detail

void prepare_launches() {
  const std::string_view setting = blocking_setting();
  detail::launches_block = setting == "1";
  always_queues = setting == "0";
  if (detail::launches_block || driver().stream_host_function == nullptr) {
    pause_queueing(1);
  }
}

QueuedWork::QueuedWork(const char* operator_name, c10::DeviceIndex device)
    : operator_name_(operator_name),
      device_(device),
      stream_(current_stream(device)),
      line_(CallingLine::here()),
      threads_(at::get_num_threads()),
      launch_(operator_name, device) {}

QueuedWork::~QueuedWork() = default;

void QueuedWork::run_queued() noexcept {
  try {
    const OnStreamThread scope(threads_);
    const NotedRun noted(stream_, operator_name_, line_);
    const profile::Running running(std::move(launch_));
    run();
  } catch (const std::exception&) {
    keep_late_failure(std::current_exception(), operator_name_, line_);
  }
}

void queue_on_host(std::unique_ptr<QueuedWork> work) {
  const auto run = [](void* given) {
    const std::unique_ptr<QueuedWork> owned(static_cast<QueuedWork*>(given));
    owned->run_queued();
  };
  const c10::DeviceIndex device = work->device_;
  if (is_captured(work->stream_)) {
    const opsmith_stream stream = work->stream_;
    return record_on_host(std::move(work), stream, device);
  }
  if (C10_UNLIKELY(waits_are_limited())) {  // what it throws is told with its own name
    detail::note_launch(work->operator_name_, device);
  }
  const opsmith_status status = driver().stream_host_function(work->stream_, run, work.get());
  if (status == OPSMITH_OK) {
    (void)work.release();  // the stream's, even if check() raises an earlier failure
  }
  check(status, "queue a kernel", device);
}

void record_on_host(std::unique_ptr<QueuedWork> work, opsmith_stream stream, c10::DeviceIndex device) {
  const auto run = [](void* given) { static_cast<QueuedWork*>(given)->run_queued(); };
  const std::shared_ptr<Capture> capture = Capture::current();
  TORCH_CHECK(capture != nullptr, "the stream is captured by somebody else than torch.accelerator.Graph");
  if (driver().stream_host_function == nullptr) {
    refuse_capture(work->operator_name(),
                   "it runs on the host, and the driver has no entry `stream_host_function`", device);
  }
  check(driver().stream_host_function(stream, run, work.get()), "record a kernel", device);
  capture->keep(std::move(work));
}

QueueingPaused::QueueingPaused() {
  pause_queueing(1);
}

QueueingPaused::~QueueingPaused() {
  pause_queueing(-1);
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("finish_queued_work() -> ()", &finish_queued_work);
}

}  // namespace opsmith
