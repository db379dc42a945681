// Work that the threads share, each with memory of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel.h"
#include "temporary.h"

namespace opsmith {

// Tasks that the threads share, `grain_size` of which are worth a thread, with memory of `elements` that no
// other thread has.
template <class T>
class Tasks {
 public:
  Tasks(KernelRuntimeContext& context, int64_t tasks, int64_t grain_size, int64_t elements)
      : tasks_(tasks),
        at_once_(std::max<int64_t>(1, ceil_divided(tasks, kMostParts))),
        parts_(ceil_divided(tasks, at_once_)),
        parts_of_thread_(ceil_divided(grain_size, at_once_)),
        elements_(ceil_divided(elements, kLine) * kLine),
        memory_(temporary<T>(context, Checked(parts_) * elements_)) {}

  // Without it the context has failed.
  bool has_memory() const { return memory_ != nullptr; }

  // body(task, memory) of all.
  template <class Body>
  void run(const Body& body) const {
    parallel_in_slots(parts_, parts_of_thread_, [&](int64_t slot, int64_t begin, int64_t end) {
      for (int64_t task = begin * at_once_; task < std::min(tasks_, end * at_once_); ++task) {
        body(task, memory_ + slot * elements_);
      }
    });
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);  // of a cache

  const int64_t tasks_;
  const int64_t at_once_;
  const int64_t parts_;
  const int64_t parts_of_thread_;  // at least
  const int64_t elements_;
  const Temporary<T> memory_;
};

template <class T, class Body>
bool run_tasks(KernelRuntimeContext& context, int64_t tasks, int64_t grain_size, int64_t elements,
               const Body& body) {
  const Tasks<T> all(context, tasks, grain_size, elements);
  if (all.has_memory()) {
    all.run(body);
  }
  return all.has_memory();
}

}  // namespace opsmith
