// Runs a group's collectives one after the other, on a thread of the group's own or the caller's.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace opsmith {

class WorkQueue {
 public:
  // Is given what keeps it from running, if anything does, and lets it be known.
  using Task = std::function<void(const std::exception_ptr& error)>;

  WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Has the group's thread do `task` behind those before, and behind what the current stream has pending; on
  // a stream of its own, with this thread's state.
  void queue(Task task);

  // Does it in this thread, behind those before.
  void run(const Task& task);

  // Lets those that wait run after `interrupt`, and ends the thread. May be called again.
  void finish(const std::function<void()>& interrupt);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false;
  bool is_finished_ = false;
  std::thread thread_;
};

}  // namespace opsmith
