// The words of the dispatcher's tables that a trace exchanges. The one file that looks below PyTorch's
// public interface; it does so by names that the compiler checks, not by offsets.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>

namespace opsmith::trace {

using BoxedFunction = c10::BoxedKernel::InternalBoxedKernelFunction;

// The functions that a kernel in a dispatch table calls, apart from its functor.
struct Words {
  BoxedFunction* boxed = nullptr;
  void* unboxed = nullptr;
  void* sym_unboxed = nullptr;
};

// Note [Kernels are interposed word by word]
// PyTorch does not synchronise registrations with calls: `registerImpl` copies a KernelFunction over one that
// another thread may be reading, and that thread then calls an old function with a new functor, or the other
// way round. No callback can keep the threads out, for those that are inside of a call when a trace begins
// have announced nothing and redispatch.
// So nothing is registered. In the kernel in the table the functor stays, only the pointers to functions
// change, one aligned word at a time, and in an order in which whatever mixture of old and new a thread
// reads is a right call:
//   in front: the boxed function becomes ours, then the unboxed ones are emptied, which sends calls to it;
//   away:     the unboxed ones come back, then the boxed one.
// Ours passes on the functor with which it was called. It and what it looks up last as long as the process,
// for a thread may have read its address and be late. What PyTorch knows of its kernels (who registered
// what, what falls through) does not change, and a trace is seen by none who asks.
class Slot {
 public:
  // The place of `key` in the dispatch table of `op`.
  Slot(const c10::OperatorHandle& op, c10::DispatchKey key);

  Words words() const;
  // Sends all calls to `boxed`.
  void put_in_front(BoxedFunction* boxed) const;
  void put_back(const Words& words) const;

 private:
  c10::KernelFunction& kernel_;
};

// The address that identifies an operator as long as it lives.
const void* identity(const c10::OperatorHandle& op);

// The mutex under which the dispatcher's tables are written.
std::mutex& registration_mutex();

}  // namespace opsmith::trace
