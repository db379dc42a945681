#include <opsmith/distributed/work_queue.h>

#include <ATen/ThreadLocalState.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <utility>

#include <opsmith/device/device.h>
#include <opsmith/device/device_scope.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/distributed/on_stream.h>
#include <opsmith/distributed/wait_until.h>

namespace opsmith {

void WorkQueue::queue(Task task) {
  const c10::DeviceIndex device = current_device();
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  auto called = std::make_shared<c10::Event>(c10::kPrivateUse1);
  called->record(guard.getStream(c10::Device(c10::kPrivateUse1, device)));
  auto queued = [device, called, task = std::move(task), state = at::ThreadLocalState()]() {
    const at::ThreadLocalStateGuard restored(state);
    const DeviceScope on_device(device);
    std::optional<OnStream> on_own;
    std::exception_ptr error;
    try {
      on_own.emplace(
          c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), new_stream(device, 0)));
      called->synchronize();
    } catch (...) {
      error = std::current_exception();
    }
    task(error);
    if (on_own.has_value()) {
      finish_stream(current_stream(device), device);
    }
  };
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!is_finished_, "the process group was shut down");
  tasks_.push_back(std::move(queued));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

void WorkQueue::run(const Task& task) {
  {
    std::unique_lock lock(mutex_);
    wait_until(changed_, lock, [this] { return tasks_.empty() && !is_busy_; });
    TORCH_CHECK(!is_finished_, "the process group was shut down");
    is_busy_ = true;
  }
  task(nullptr);
  const std::lock_guard lock(mutex_);
  is_busy_ = false;
  changed_.notify_all();
}

void WorkQueue::finish(const std::function<void()>& interrupt) {
  {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
    changed_.notify_all();
  }
  interrupt();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void WorkQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_until(changed_, lock, [this] { return !is_busy_ && (is_finished_ || !tasks_.empty()); });
    if (tasks_.empty()) {
      return;
    }
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace opsmith
