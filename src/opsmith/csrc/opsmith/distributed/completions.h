// Threads on which what waits for a collective goes on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace opsmith {

// Callbacks of a collective's future may call other collectives and wait for them, so they must not hold up
// the thread of the group's collectives. Those of collectives that no callback has called run on one thread,
// in the order of the calls, as all ranks make them; those of collectives that these have called on another,
// and so on.
//
// The threads end by themselves after this object, and nobody waits for them, since callbacks may need what
// the waiting thread holds, as Python's lock.
class Completions {
 public:
  using Task = std::function<void()>;

  Completions() = default;
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // How many callbacks deep this thread is: 0 outside of all.
  static int depth() noexcept;

  // Runs `task` behind those before, one deeper than `depth`.
  void run(int depth, Task task);

 private:
  struct Line;
  static void work(const std::shared_ptr<Line>& line, int depth);

  std::mutex mutex_;
  std::map<int, std::shared_ptr<Line>> lines_;
};

}  // namespace opsmith
