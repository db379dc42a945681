// TORCH_LIBRARY_IMPL for generated functions:
//
//   OPSMITH_LIBRARY_IMPL(aten, PrivateUse1, m) {
//     m.impl("abs", &abs);
//   }
//
// torch::Library instantiates for each type of function what makes its std::unique_ptr and what infers a
// schema from it, a third of what a file of registrations compiles to. These functions come from the schema.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>
#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {

template <class Function>
class FunctionKernel;

template <class Result, class... Parameters>
class FunctionKernel<Result(Parameters...)> final : public c10::OperatorKernel {
 public:
  using Function = Result(Parameters...);

  explicit FunctionKernel(Function* function) : function_(function) {}

  Result operator()(Parameters... arguments) { return function_(std::forward<Parameters>(arguments)...); }

 private:
  Function* const function_;
};

}  // namespace detail

// Registers what `add_all` adds to it, for as long as it lives; `place` is for messages.
class Registrations {
 public:
  Registrations(const char* op_namespace, c10::DispatchKey key, const char* place,
                void (*add_all)(Registrations&));

  // `name` as within the namespace: "add.Tensor".
  template <class Function>
  void impl(const char* name, Function* function) {
    using Kernel = detail::FunctionKernel<Function>;
    std::unique_ptr<c10::OperatorKernel> kernel(new Kernel(function));
    add(name, c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::move(kernel)),
        c10::impl::CppSignature::make<Function>());
  }

 private:
  void add(const char* name, c10::KernelFunction kernel, c10::impl::CppSignature signature);

  std::string op_namespace_;
  c10::DispatchKey key_;
  const char* place_;
  std::vector<c10::RegistrationHandleRAII> handles_;
};

}  // namespace opsmith

#define OPSMITH_LIBRARY_IMPL(op_namespace, key, m) OPSMITH_LIBRARY_IMPL_NAMED(op_namespace, key, m, C10_UID)
#define OPSMITH_LIBRARY_IMPL_NAMED(op_namespace, key, m, uid)                                      \
  static void C10_CONCATENATE(add_registrations_, uid)(opsmith::Registrations&);                   \
  static const opsmith::Registrations C10_CONCATENATE(registrations_, uid)(                        \
      #op_namespace, c10::DispatchKey::key, "registered at " __FILE__ ":" C10_STRINGIZE(__LINE__), \
      &C10_CONCATENATE(add_registrations_, uid));                                                  \
  static void C10_CONCATENATE(add_registrations_, uid)(opsmith::Registrations & m)
