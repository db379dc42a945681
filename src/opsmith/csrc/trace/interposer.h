// Puts a recording kernel in front of each kernel of an operator, and takes it away again.
#pragma once

#include "record.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace opsmith::trace {

class Session;

// Note [Operators are interposed when they are first called]
// A dispatch table is not written atomically, so no other thread may look into an operator's table while it
// changes. An operator is therefore interposed by the callback that the dispatcher runs before each call: a
// thread that calls the operator for the first time finds it done, or does it, before it reads the table.
// That also reaches operators that are defined while the trace runs, and starting costs nothing.
class Interposer {
 public:
  // Puts recording kernels in front of those of the operator, unless it has been done. `generation`: done
  // again where it was done for an earlier one, since the program has registered kernels since.
  void interpose(Session& session, const c10::OperatorName& name, uint64_t generation);

  // Takes all away. Recording kernels themselves stay, for threads that are inside of them, until forget().
  void remove();
  void forget();

  // In the child of a fork.
  void forked() { new (&mutex_) std::mutex(); }

 private:
  struct Interposed {
    uint64_t generation = 0;
    std::vector<c10::RegistrationHandleRAII> registrations;
  };

  std::mutex mutex_;
  std::unordered_map<c10::OperatorName, Interposed> operators_;
  std::vector<c10::KernelFunction> kernels_;
};

}  // namespace opsmith::trace
