// Streams and events. A stream is an in-order queue served by a thread of its own, which starts with the
// first task that has to be asynchronous; an event is a place in a stream's queue with the time at which the
// stream reached it.
#pragma once

#include <opsmith_driver.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace sim {

// One recording of an event. It outlives the event while a stream still waits for it.
class Record {
 public:
  void complete();
  bool is_complete() const { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const { done_.wait(0, std::memory_order_acquire); }
  // Of a complete record.
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  std::chrono::steady_clock::time_point time_;
  std::atomic<int> done_{0};
};

class Capture;

// Counts for sim.h's statistics.
struct StreamCounts {
  uint64_t streams = 0;
  uint64_t threads = 0;
};
StreamCounts stream_counts(int device);

}  // namespace sim

struct opsmith_stream_s {
 public:
  // A number that tells when the work queued up to now is done.
  using Ticket = uint64_t;

  explicit opsmith_stream_s(int device);
  ~opsmith_stream_s();  // finishes the queued work first

  int device() const { return device_; }

  // Whether all queued work is done. The runtime asks before every operator: two loads, no lock.
  // `completed_` is read first: if it equals a later value of `enqueued_`, nothing was pending in between.
  bool is_idle() const {
    const uint64_t completed = completed_.load(std::memory_order_acquire);
    return completed == enqueued_.load(std::memory_order_acquire);
  }

  // Queues `task`; the thread runs it when all earlier tasks are done. `what` is shown to people.
  Ticket enqueue(const char* what, std::function<void()> task);

  // Queues work that fails when it runs, as a kernel with a fault does.
  void enqueue_failing() {
    enqueue("fault", [this] { has_failed_.store(true, std::memory_order_release); });
  }
  // Whether work that is done has failed; said once.
  bool take_failure() { return has_failed_.load(std::memory_order_acquire) && has_failed_.exchange(false); }

  // Note [Inline tasks]
  // Runs `task` at once on the calling thread if the stream is idle, else queues it. For tasks that are
  // short, or that the caller waits for anyway: a hop to the stream's thread and back costs 10 to 50 us, a
  // small copy far less. Order holds because the stream's lock is held for the whole task: whoever wants to
  // queue something waits for the lock, so it comes later; and nothing came earlier, since the stream was
  // idle under that same lock. `slow` (see sim.h) turns this off, so that tests can rely on a task to be
  // pending.
  template <class Task>
  Ticket run_or_enqueue(const char* what, Task&& task) {
    const std::lock_guard lock(mutex_);
    if (may_run_inline()) {
      task();
      return completed_.load(std::memory_order_relaxed);
    }
    return push(what, std::forward<Task>(task), true);
  }

  // The same for the marks of events, which `slow` does not delay: they are no work.
  template <class Task>
  void mark(Task&& task) {
    const std::lock_guard lock(mutex_);
    if (is_idle()) {
      task();
    } else {
      push("event", std::forward<Task>(task), false);
    }
  }

  // Queues what only waits for another stream: no work either, and never inline.
  void mark_pending(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    push("wait", std::move(task), false);
  }

  // Until end_capture(), tasks are `capture`'s, and this stream does `gate`. false: it is captured already.
  bool begin_capture(std::shared_ptr<sim::Capture> capture, std::function<void()> gate);
  void end_capture();
  std::shared_ptr<sim::Capture> capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }

  // Everything queued so far.
  Ticket last_ticket() const { return enqueued_.load(std::memory_order_acquire); }

  void wait(Ticket ticket);

  // Whether the caller runs on this stream's thread, where waiting for the stream would never end.
  bool is_own_thread() const;

 private:
  struct Task {
    std::function<void()> run;
    long pause;  // microseconds before it runs: sim.h's "slow"
  };

  bool may_run_inline() const;
  Ticket push(const char* what, std::function<void()> task, bool is_work);  // needs the lock
  void serve();

  const int device_;
  std::atomic<uint64_t> enqueued_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  std::deque<Task> queue_;
  std::thread thread_;
  bool stopping_ = false;
  std::shared_ptr<sim::Capture> capture_;  // null: none
};

namespace sim {

// An event that was recorded on a captured stream: a place in a graph.
struct CapturedEvent {
  std::shared_ptr<Capture> capture;  // null: the event was not recorded so
  std::map<size_t, size_t> before;   // see graph.h
};

}  // namespace sim

struct opsmith_event_s {
  opsmith_event_s(int event_device, bool has_timing) : device(event_device), timing(has_timing) {}

  // The latest recording; nullptr before the first.
  std::shared_ptr<sim::Record> latest() {
    const std::lock_guard lock(mutex);
    return record;
  }
  sim::CapturedEvent latest_captured() {
    const std::lock_guard lock(mutex);
    return captured;
  }

  const int device;
  const bool timing;
  std::mutex mutex;
  std::shared_ptr<sim::Record> record;
  sim::CapturedEvent captured;
};
