// See slots.h.
#include "slots.h"

#include <atomic>

namespace opsmith::trace {
namespace {

// Access to private members is not checked in explicit instantiations: each of these defines the function
// that it befriends.
auto& definition(const c10::OperatorHandle& op);
auto& table(c10::impl::OperatorEntry& entry);
auto& boxed_kernel(c10::KernelFunction& kernel);
auto& boxed_function(c10::BoxedKernel& kernel);
auto& unboxed_function(c10::KernelFunction& kernel);
auto& sym_unboxed_function(c10::KernelFunction& kernel);
auto& guard(c10::Dispatcher& dispatcher);

template <auto kMember>
struct Definition {
  friend auto& definition(const c10::OperatorHandle& op) { return *(op.*kMember); }
};
template struct Definition<&c10::OperatorHandle::operatorDef_>;

template <auto kMember>
struct Table {
  friend auto& table(c10::impl::OperatorEntry& entry) { return entry.*kMember; }
};
template struct Table<&c10::impl::OperatorEntry::dispatchTable_>;

template <auto kMember>
struct BoxedKernel {
  friend auto& boxed_kernel(c10::KernelFunction& kernel) { return kernel.*kMember; }
};
template struct BoxedKernel<&c10::KernelFunction::boxed_kernel_func_>;

template <auto kMember>
struct BoxedFunctionOf {
  friend auto& boxed_function(c10::BoxedKernel& kernel) { return kernel.*kMember; }
};
template struct BoxedFunctionOf<&c10::BoxedKernel::boxed_kernel_func_>;

template <auto kMember>
struct UnboxedFunction {
  friend auto& unboxed_function(c10::KernelFunction& kernel) { return kernel.*kMember; }
};
template struct UnboxedFunction<&c10::KernelFunction::unboxed_kernel_func_>;

template <auto kMember>
struct SymUnboxedFunction {
  friend auto& sym_unboxed_function(c10::KernelFunction& kernel) { return kernel.*kMember; }
};
template struct SymUnboxedFunction<&c10::KernelFunction::sym_unboxed_kernel_func_>;

template <auto kMember>
struct Guard {
  friend auto& guard(c10::Dispatcher& dispatcher) { return *(dispatcher.*kMember); }
};
template struct Guard<&c10::Dispatcher::guard_>;

template <class Pointer>
void write(Pointer& word, Pointer value) {
  static_assert(std::atomic_ref<Pointer>::is_always_lock_free);
  std::atomic_ref(word).store(value, std::memory_order_seq_cst);
}

}  // namespace

Slot::Slot(const c10::OperatorHandle& op, c10::DispatchKey key)
    : kernel_(
          table(definition(op).op)
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
  return &definition(op);
}

std::mutex& registration_mutex() {
  return guard(c10::Dispatcher::singleton()).mutex;
}

}  // namespace opsmith::trace
