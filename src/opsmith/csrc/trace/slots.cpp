// See slots.h.
#include "slots.h"

#include <atomic>

namespace opsmith::trace {
namespace {

// Access to private members is not checked in explicit instantiations: each of these defines the function
// that it befriends.
#define OPSMITH_MEMBER(name, Name, Owner, pointer)             \
  auto& name(Owner& owner);                                    \
  template <auto kMember>                                      \
  struct Name {                                                \
    friend auto& name(Owner& owner) { return owner.*kMember; } \
  };                                                           \
  template struct Name<pointer>;
OPSMITH_MEMBER(definition, Definition, const c10::OperatorHandle, &c10::OperatorHandle::operatorDef_)
OPSMITH_MEMBER(table, Table, c10::impl::OperatorEntry, &c10::impl::OperatorEntry::dispatchTable_)
OPSMITH_MEMBER(boxed_kernel, BoxedKernelOf, c10::KernelFunction, &c10::KernelFunction::boxed_kernel_func_)
OPSMITH_MEMBER(boxed_function, BoxedFunctionOf, c10::BoxedKernel, &c10::BoxedKernel::boxed_kernel_func_)
OPSMITH_MEMBER(unboxed_function, UnboxedFunction, c10::KernelFunction,
               &c10::KernelFunction::unboxed_kernel_func_)
OPSMITH_MEMBER(sym_unboxed_function, SymUnboxedFunction, c10::KernelFunction,
               &c10::KernelFunction::sym_unboxed_kernel_func_)
OPSMITH_MEMBER(guard, Guard, c10::Dispatcher, &c10::Dispatcher::guard_)
#undef OPSMITH_MEMBER

template <class Pointer>
void write(Pointer& word, Pointer value) {
  static_assert(std::atomic_ref<Pointer>::is_always_lock_free);
  std::atomic_ref(word).store(value, std::memory_order_seq_cst);
}

}  // namespace

Slot::Slot(const c10::OperatorHandle& op, c10::DispatchKey key)
    : kernel_(
          table(definition(op)->op)
              .at(static_cast<size_t>(c10::DispatchKeySet(key).getDispatchTableIndexForDispatchKeySet()))) {}

Words Slot::words() const {
  return {boxed_function(boxed_kernel(kernel_)), unboxed_function(kernel_), sym_unboxed_function(kernel_)};
}

void Slot::put_in_front(BoxedFunction* boxed) const {
  write(boxed_function(boxed_kernel(kernel_)), boxed);
  write<void*>(unboxed_function(kernel_), nullptr);
  write<void*>(sym_unboxed_function(kernel_), nullptr);
}

void Slot::put_back(const Words& words) const {
  write(sym_unboxed_function(kernel_), words.sym_unboxed);
  write(unboxed_function(kernel_), words.unboxed);
  write(boxed_function(boxed_kernel(kernel_)), words.boxed);
}

const void* identity(const c10::OperatorHandle& op) {
  return definition(op);
}

std::mutex& registration_mutex() {
  return guard(c10::Dispatcher::singleton())->mutex;
}

}  // namespace opsmith::trace
