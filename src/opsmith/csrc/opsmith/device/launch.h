// When kernels run. Host-side kernels are work of a device's stream: the caller goes on while they run. What
// they throw is kept, and raised where somebody next waits for the device.
//
// Note [At once or queued]
// ~~~~~~~~~~~~~~~~~~~~~~~~
// To hand work to another thread and to wait for it costs tens of microseconds, as much again for each
// parallel loop in it, and Python then shares the cores with the kernel: a training step of many kernels of
// 0.1 ms takes twice as long on two cores. So a kernel runs on the calling thread where its stream is idle
// and its Tensors have less than a million elements; behind pending work, or where they have more, it is
// queued. Both keep the stream's order.
#pragma once

#include <opsmith/device/calling_line.h>
#include <opsmith/device/capture.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/device_work.h>
#include <opsmith/device/launched_last.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>

#include <atomic>
#include <memory>

namespace opsmith {

namespace detail {
extern std::atomic<bool> may_queue;
bool queueing_pays();
}  // namespace detail

// Elements in all Tensors of a call from which on it is worth queueing: it takes a millisecond or so.
constexpr int64_t kWorthQueueing = int64_t{1} << 20;

// Heeds OPSMITH_LAUNCH_BLOCKING, and what the driver offers. Throws c10::Error for a setting that is none.
// Called by load_driver().
void prepare_launches();

// Work that the current stream of `device` runs on the host, as `operator_name`. Made by the thread that
// calls the operator.
class QueuedWork {
 public:
  QueuedWork(const char* operator_name, c10::DeviceIndex device);
  virtual ~QueuedWork();
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;

  // On a thread of the driver's; often, as part of a graph.
  void run_queued() noexcept;

  const char* operator_name() const { return operator_name_; }

 private:
  virtual void run() = 0;

  const char* operator_name_;
  c10::DeviceIndex device_;
  opsmith_stream stream_;
  CallingLine line_;
  int threads_;
  profile::Launch launch_;

  friend void queue_on_host(std::unique_ptr<QueuedWork> work);
};

// Whether a host-side kernel on `elements` in all its Tensors is to run on the calling thread now; the
// current stream of `device` has then nothing pending. Else it is to be queued.
inline bool runs_at_once(c10::DeviceIndex device, int64_t elements) {
  const opsmith_stream stream = current_stream(device);
  if (C10_LIKELY(elements < kWorthQueueing && driver().stream_query(stream) == OPSMITH_OK)) {
    return true;
  }
  if (is_captured(stream)) {
    return false;
  }
  if (detail::may_queue.load(std::memory_order_relaxed) && detail::queueing_pays()) {
    return false;
  }
  synchronize_stream(stream, device);
  return true;
}

// Hands `work` to its stream, or to the graph that captures it.
void queue_on_host(std::unique_ptr<QueuedWork> work);

// Records `work` on its stream, which is captured; the graph keeps it and runs it often.
void record_on_host(std::unique_ptr<QueuedWork> work, opsmith_stream stream, c10::DeviceIndex device);

// While one lives, host-side kernels run before their calls return, so that calls can be timed.
class QueueingPaused {
 public:
  QueueingPaused();
  ~QueueingPaused();
  QueueingPaused(const QueueingPaused&) = delete;
  QueueingPaused& operator=(const QueueingPaused&) = delete;
};

}  // namespace opsmith
