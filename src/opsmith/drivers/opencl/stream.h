// Streams are in-order command queues, events are markers in them.
#pragma once

#include <mutex>

#include <opsmith_driver.h>

#include "api.h"

// An in-order queue, and the last command in it.
struct opsmith_stream_s {
 public:
  explicit opsmith_stream_s(int device);
  ~opsmith_stream_s();
  opsmith_stream_s(const opsmith_stream_s&) = delete;
  opsmith_stream_s& operator=(const opsmith_stream_s&) = delete;

  int device() const { return device_; }
  cl_command_queue queue() const { return queue_; }

  // Calls enqueue(queue, &event) of one command, which the stream then knows as its last. Throws Failure
  // where it gives an error.
  template <class Enqueue>
  void add(const char* action, const Enqueue& enqueue) {
    const std::lock_guard lock(mutex_);
    cl_event event = nullptr;
    check(enqueue(queue_, &event), action);
    replace_last(event);
  }

  bool is_idle();
  void wait();
  // The last command, retained for the caller; null where there is none.
  cl_event last();

  // The device address of the int in which the next kernel may leave a mistake (opsmith_compute.h).
  const void* faults();
  // For a stream that has been waited for. Throws Failure where a kernel has left one.
  void raise_fault();

 private:
  static void check(cl_int error, const char* action);
  void replace_last(cl_event event);

  const int device_;
  cl_command_queue queue_;
  std::mutex mutex_;
  cl_event last_ = nullptr;  // null: everything is done
  void* faults_ = nullptr;
  bool may_have_fault_ = false;
};

// The event as it was recorded last; `marker` is null before.
struct opsmith_event_s {
  std::mutex mutex;
  cl_event marker = nullptr;
  int device = -1;
};

namespace opencl {

opsmith_stream default_stream(int device);

}  // namespace opencl
