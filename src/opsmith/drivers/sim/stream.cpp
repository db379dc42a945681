// See stream.h.
#include "stream.h"

#include <utility>

#include "faults.h"
#include "graph.h"
#include "memory.h"

namespace sim {
namespace {

struct AtomicStreamCounts {
  std::atomic<uint64_t> streams{0};
  std::atomic<uint64_t> threads{0};
};
constinit AtomicStreamCounts counts[kMaxDevices];

// Tasks that are not done: who queues more waits for the stream, as for a real device's.
constexpr size_t kMostPending = 1024;

// The stream whose thread this is.
constinit thread_local const opsmith_stream_s* served_stream = nullptr;

}  // namespace

StreamCounts stream_counts(int device) {
  return {counts[device].streams.load(), counts[device].threads.load()};
}

void Record::complete() {
  time_ = std::chrono::steady_clock::now();
  // Sequentially consistent: libstdc++ wakes nobody where it reads that nobody waits, and would read that
  // before a release store is seen.
  done_.store(1);
  done_.notify_all();
}

}  // namespace sim

opsmith_stream_s::opsmith_stream_s(int device) : device_(device) {
  ++sim::counts[device_].streams;
}

opsmith_stream_s::~opsmith_stream_s() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
    --sim::counts[device_].threads;
  }
  --sim::counts[device_].streams;
}

opsmith_stream_s::Ticket opsmith_stream_s::enqueue(const char* what, std::function<void()> task) {
  std::unique_lock lock(mutex_);
  // Not a stream's own thread: this stream may wait for that one.
  if (sim::served_stream == nullptr) {
    progress_.wait(lock, [this] { return enqueued_.load() - completed_.load() < sim::kMostPending; });
  }
  return push(what, std::move(task), true);
}

bool opsmith_stream_s::begin_capture(std::shared_ptr<sim::Capture> capture, std::function<void()> gate) {
  const std::lock_guard lock(mutex_);
  if (capture_ != nullptr) {
    return false;
  }
  push("capture", std::move(gate), false);
  capture_ = std::move(capture);
  return true;
}

void opsmith_stream_s::end_capture() {
  const std::lock_guard lock(mutex_);
  capture_ = nullptr;
}

bool opsmith_stream_s::may_run_inline() const {
  return is_idle() && sim::faults::slow_microseconds() == 0;
}

opsmith_stream_s::Ticket opsmith_stream_s::push(const char* what, std::function<void()> task, bool is_work) {
  if (capture_ != nullptr) {
    capture_->add(this, what, std::move(task));
    return enqueued_.load(std::memory_order_relaxed);
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { serve(); });
    ++sim::counts[device_].threads;
  }
  queue_.push_back({std::move(task), is_work ? sim::faults::slow_microseconds() : 0});
  const Ticket ticket = enqueued_.fetch_add(1, std::memory_order_acq_rel) + 1;
  work_.notify_one();
  return ticket;
}

void opsmith_stream_s::serve() {
  sim::served_stream = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (task.pause > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(task.pause));
    }
    task.run();
    task.run = nullptr;  // what it holds goes before the work counts as done
    lock.lock();
    completed_.fetch_add(1, std::memory_order_acq_rel);
    progress_.notify_all();
  }
}

void opsmith_stream_s::wait(Ticket ticket) {
  if (completed_.load(std::memory_order_acquire) >= ticket) {
    return;
  }
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return completed_.load(std::memory_order_relaxed) >= ticket; });
}

bool opsmith_stream_s::is_own_thread() const {
  return sim::served_stream == this;
}
