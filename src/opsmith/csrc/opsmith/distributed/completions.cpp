#include <opsmith/distributed/completions.h>

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include <opsmith/distributed/wait_until.h>

namespace opsmith {

namespace {

thread_local int depth_of_thread = 0;

}  // namespace

struct Completions::Line {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool is_finished = false;
};

Completions::~Completions() {
  for (const auto& [_, line] : lines_) {
    const std::lock_guard lock(line->mutex);
    line->is_finished = true;
    line->changed.notify_one();
  }
}

int Completions::depth() noexcept {
  return depth_of_thread;
}

void Completions::run(int depth, Task task) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Line>& line = lines_[depth];
  if (line == nullptr) {
    line = std::make_shared<Line>();
    std::thread([line, depth] { work(line, depth + 1); }).detach();
  }
  const std::lock_guard line_lock(line->mutex);
  line->tasks.push_back(std::move(task));
  line->changed.notify_one();
}

void Completions::work(const std::shared_ptr<Line>& line, int depth) {
  depth_of_thread = depth;
  std::unique_lock lock(line->mutex);
  for (;;) {
    wait_until(line->changed, lock, [&] { return line->is_finished || !line->tasks.empty(); });
    if (line->tasks.empty()) {
      return;
    }
    Task task = std::move(line->tasks.front());
    line->tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds may need the lock to end
    lock.lock();
  }
}

}  // namespace opsmith
