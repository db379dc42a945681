// Puts a recording function in front of each kernel of an operator, and takes it away again.
#pragma once

#include "record.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <unordered_map>

namespace opsmith::trace {

class Operator;
class Session;

// Note [Operators are interposed when they are first called]
// An operator is interposed by the callback that the dispatcher runs before each call: a thread that calls
// the operator for the first time finds it done, or does it. That also reaches operators that are defined
// while the trace runs, and starting costs nothing. It may be done while other threads are inside of the
// operator: see Note [Kernels are interposed word by word].
class Interposer {
 public:
  // From now on for `session`; null: for none.
  void serve(Session* session);

  // Puts recording functions in front of the operator's kernels, unless it has been done or no trace runs.
  // `generation`: done again where it was done for an earlier one, since the program has registered kernels
  // since.
  void interpose(const c10::OperatorName& name, uint64_t generation);

  // Takes all away.
  void remove();

  // In the child of a fork.
  void forked() { new (&mutex_) std::mutex(); }

 private:
  struct Interposed {
    uint64_t generation = 0;
    Operator* what = nullptr;
  };

  std::mutex mutex_;
  Session* session_ = nullptr;
  std::unordered_map<c10::OperatorName, Interposed> operators_;
};

}  // namespace opsmith::trace
