// Work that the threads share, each with memory of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/temporary.h"
#include "threads.h"

namespace opsmith::optimized {

// Tasks that the threads share, with `units` of memory that no other thread has. Each costs `cost`, as
// rows_per_thread takes it.
class Tasks {
 public:
  Tasks(KernelRuntimeContext& context, int64_t tasks, int64_t cost, int64_t units)
      : tasks_(tasks),
        at_once_(std::max<int64_t>(1, ceil_divided(tasks, kMostParts))),
        parts_(ceil_divided(tasks, at_once_)),
        parts_of_thread_(ceil_divided(rows_per_thread(cost), at_once_)),
        units_(ceil_divided(units, 16) * 16),  // multiples of a cache line
        memory_(temporary<float>(context, parts_ * units_)) {}

  // Without it the context has failed.
  bool has_memory() const { return memory_ != nullptr; }

  // body(task, memory) of all.
  template <class Body>
  void run(const Body& body) const {
    parallel(parts_, parts_of_thread_, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin * at_once_; task < std::min(tasks_, end * at_once_); ++task) {
        body(task, memory_ + begin * units_);
      }
    });
  }

 private:
  const int64_t tasks_;
  const int64_t at_once_;
  const int64_t parts_;
  const int64_t parts_of_thread_;  // at least
  const int64_t units_;
  const Temporary<float> memory_;
};

template <class Body>
bool run_tasks(KernelRuntimeContext& context, int64_t tasks, int64_t cost, int64_t units, const Body& body) {
  const Tasks all(context, tasks, cost, units);
  if (all.has_memory()) {
    all.run(body);
  }
  return all.has_memory();
}

}  // namespace opsmith::optimized
