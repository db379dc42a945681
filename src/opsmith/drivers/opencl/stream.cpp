// See stream.h.
#include "stream.h"

#include <map>
#include <memory>

#include "errors.h"
#include "memory.h"
#include "platform.h"

using opencl::api;

opsmith_stream_s::opsmith_stream_s(int device) : device_(device) {
  const opencl::DeviceFacts& facts = opencl::device_facts(device);
  cl_int error = opencl::kSuccess;
  queue_ = api().CreateCommandQueue(opencl::platform().context, facts.id, opencl::kQueueProfiling, &error);
  check(error, "make a queue");
}

opsmith_stream_s::~opsmith_stream_s() {
  api().Finish(queue_);
  replace_last(nullptr);
  if (faults_ != nullptr) {
    opencl::release(device_, faults_);
  }
  api().ReleaseCommandQueue(queue_);
}

void opsmith_stream_s::check(cl_int error, const char* action) {
  opencl::check(error, action);
}

void opsmith_stream_s::replace_last(cl_event event) {
  if (last_ != nullptr) {
    api().ReleaseEvent(last_);
  }
  last_ = event;
}

bool opsmith_stream_s::is_idle() {
  const std::lock_guard lock(mutex_);
  if (last_ == nullptr) {
    return !may_have_fault_;  // who waits then is told
  }
  cl_int status = opencl::kComplete;
  check(api().GetEventInfo(last_, opencl::kEventExecutionStatus, sizeof(status), &status, nullptr),
        "ask whether a command is done");
  if (status > opencl::kComplete) {
    api().Flush(queue_);  // who asks again and again should see it done some time
    return false;
  }
  replace_last(nullptr);
  check(status, "a command of the queue");
  return !may_have_fault_;
}

void opsmith_stream_s::wait() {
  const cl_event event = last();
  if (event == nullptr) {
    return;
  }
  // Not under the lock: others go on adding commands meanwhile.
  const cl_int error = api().WaitForEvents(1, &event);
  cl_int status = opencl::kComplete;
  api().GetEventInfo(event, opencl::kEventExecutionStatus, sizeof(status), &status, nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (last_ == event) {
      replace_last(nullptr);
    }
  }
  api().ReleaseEvent(event);
  if (status < opencl::kComplete) {
    check(status, "a command of the queue");
  }
  check(error, "wait for a queue");
}

cl_event opsmith_stream_s::last() {
  const std::lock_guard lock(mutex_);
  if (last_ != nullptr) {
    api().RetainEvent(last_);
  }
  return last_;
}

const void* opsmith_stream_s::faults() {
  {
    const std::lock_guard lock(mutex_);
    may_have_fault_ = true;
    if (faults_ != nullptr) {
      return faults_;
    }
  }
  void* const made = opencl::allocate(device_, sizeof(cl_int));
  const opencl::Place place = opencl::place_of(made);
  const cl_int none = 0;
  add("prepare for faults", [&](cl_command_queue queue, cl_event* event) {
    return api().EnqueueFillBuffer(queue, place.buffer, &none, sizeof(none), place.offset, sizeof(none), 0,
                                   nullptr, event);
  });
  const std::lock_guard lock(mutex_);
  faults_ = made;
  return faults_;
}

void opsmith_stream_s::raise_fault() {
  cl_int fault = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!may_have_fault_ || faults_ == nullptr) {
      return;
    }
    may_have_fault_ = false;
    const opencl::Place place = opencl::place_of(faults_);
    check(api().EnqueueReadBuffer(queue_, place.buffer, /*blocking=*/1, place.offset, sizeof(fault), &fault,
                                  0, nullptr, nullptr),
          "ask for faults");
    if (fault == 0) {
      return;
    }
    const cl_int none = 0;
    check(api().EnqueueFillBuffer(queue_, place.buffer, &none, sizeof(none), place.offset, sizeof(none), 0,
                                  nullptr, nullptr),
          "reset faults");
  }
  throw opencl::Failure(OPSMITH_FAILED, driver_parts::fault_text(fault));
}

namespace opencl {

opsmith_stream default_stream(int device) {
  static std::mutex mutex;
  // Never destroyed: work may be queued while the process ends.
  static auto* const streams = new std::map<int, std::unique_ptr<opsmith_stream_s>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<opsmith_stream_s>& stream = (*streams)[device];
  if (stream == nullptr) {
    stream = std::make_unique<opsmith_stream_s>(device);
  }
  return stream.get();
}

}  // namespace opencl
