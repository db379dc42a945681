// EXECUTORCH_LIBRARY(myop, "scale.out", scale_out): registers a kernel under its operator's name.
#pragma once

#include <type_traits>

#include <executorch/runtime/kernel/operator_registry.h>

namespace executorch::extension {

namespace kernel_util_internal {

template <class Function, Function* kFunction, const char* kName>
struct CompileTimeFunctionPointer final {
  static constexpr Function* func_ptr() { return kFunction; }
  static constexpr const char* func_name_ = kName;
};

}  // namespace kernel_util_internal

// Stands for the function that takes a stack of values. build/registered.py reads the kernel and its type
// from its symbol.
template <class FuncType>
struct WrapUnboxedIntoFunctor {
  static void call(runtime::KernelRuntimeContext& context, runtime::Span<runtime::EValue*>) {
    ET_LOG(Error, "%s is not called by a stack of values here", FuncType::func_name_);
    context.fail(runtime::Error::NotSupported);
  }
};

template <class FuncType>
runtime::Kernel make_boxed_kernel(const char* name, FuncType) {
  return runtime::Kernel(name, WrapUnboxedIntoFunctor<FuncType>::call);
}

}  // namespace executorch::extension

#define EXECUTORCH_FN_TYPE(function, name)                                   \
  ::executorch::extension::kernel_util_internal::CompileTimeFunctionPointer< \
      std::remove_pointer_t<std::remove_reference_t<decltype(function)>>, function, name>
#define EXECUTORCH_FN(function, name) EXECUTORCH_FN_TYPE(function, name)()

#define ET_CONCATENATE_IMPL(a, b) a##b
#define ET_CONCATENATE(a, b) ET_CONCATENATE_IMPL(a, b)

#define EXECUTORCH_LIBRARY(ns, name, function) OPSMITH_REGISTER(ns, name, function, __LINE__)
#define OPSMITH_REGISTER(ns, name, function, line)                                       \
  static constexpr const char ET_CONCATENATE(name_of_op_, line)[] = #ns "::" name;       \
  [[maybe_unused]] static const auto ET_CONCATENATE(res_##ns##_, line) =                 \
      ::executorch::runtime::register_kernel(::executorch::extension::make_boxed_kernel( \
          ET_CONCATENATE(name_of_op_, line), EXECUTORCH_FN(function, ET_CONCATENATE(name_of_op_, line))))

namespace torch::executor {
using ::executorch::extension::make_boxed_kernel;
}  // namespace torch::executor
