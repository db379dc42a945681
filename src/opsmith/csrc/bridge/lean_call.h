// Calls of lean kernels from generated code: each argument as the kernel takes it, a failure as an exception.
//
//   opsmith::lean_call(&::mylib::native::scale_out, {"mylib::scale", "mylib::native::scale_out (mylib)",
//                                                    opsmith::DimOrders::kContiguous}, self, factor, out);
//
// What is instantiated depends on the kernel's type, which many kernels share.
#pragma once

#include <bridge/lean_tensor.h>
#include <lean/failure.h>
#include <opsmith/generated/pack.h>

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

namespace opsmith {

namespace detail {

using ::executorch::runtime::Error;
using ::executorch::runtime::KernelRuntimeContext;

// `Given`, as `Taken`, the type of the kernel's parameter; the rest of the call lives as long as this does.
// By default both are the same: int, bool, float, str and their optional forms.
template <class Taken, class Given>
struct LeanArgument {
  LeanArgument(const LeanCall&, const Given& given) : value(given) {}
  const Given& get() { return value; }
  void finish() {}

  const Given& value;
};

template <>
struct LeanArgument<const lean::Tensor&, at::Tensor> : LeanInput {
  using LeanInput::LeanInput;
  void finish() {}
};

template <>
struct LeanArgument<lean::Tensor&, at::Tensor> : LeanOutput {
  using LeanOutput::LeanOutput;
};

template <>
struct LeanArgument<const std::optional<lean::Tensor>&, std::optional<at::Tensor>> {
  LeanArgument(const LeanCall& call, const std::optional<at::Tensor>& given) {
    if (given.has_value() && given->defined()) {
      tensor.emplace(call, *given);
      value = tensor->get();
    }
  }
  const std::optional<lean::Tensor>& get() { return value; }
  void finish() {}
  void take_copies(std::vector<at::Tensor>& copies) {
    if (tensor.has_value()) {
      copies.push_back(tensor->take_copy());
    }
  }

  std::optional<LeanInput> tensor;
  std::optional<lean::Tensor> value;
};

// Lists of Tensors. LeanInput does not move: each has a place of its own.
template <class Element>
struct LeanList {
  template <class Tensors>
  LeanList(const LeanCall& call, const Tensors& given) {
    inputs = std::vector<std::optional<LeanInput>>(given.size());
    values.reserve(given.size());
    size_t index = 0;
    for (const auto& tensor : given) {
      add(call, tensor, inputs[index++]);
    }
  }
  lean::ArrayRef<Element> get() { return {values.data(), values.size()}; }
  void finish() {}
  void take_copies(std::vector<at::Tensor>& copies) {
    for (auto& input : inputs) {
      if (input.has_value()) {
        copies.push_back(input->take_copy());
      }
    }
  }

 private:
  void add(const LeanCall& call, const at::Tensor& tensor, std::optional<LeanInput>& input) {
    input.emplace(call, tensor);
    values.push_back(input->get());
  }
  void add(const LeanCall& call, const std::optional<at::Tensor>& tensor, std::optional<LeanInput>& input) {
    if (tensor.has_value() && tensor->defined()) {
      add(call, *tensor, input);
    } else {
      values.emplace_back();
    }
  }

  std::vector<std::optional<LeanInput>> inputs;
  std::vector<Element> values;
};

template <>
struct LeanArgument<lean::TensorList, at::TensorList> : LeanList<lean::Tensor> {
  using LeanList::LeanList;
};

template <>
struct LeanArgument<lean::TensorList, at::ITensorListRef> : LeanList<lean::Tensor> {
  using LeanList::LeanList;
};

template <>
struct LeanArgument<lean::ArrayRef<std::optional<lean::Tensor>>, c10::List<std::optional<at::Tensor>>>
    : LeanList<std::optional<lean::Tensor>> {
  LeanArgument(const LeanCall& call, const c10::List<std::optional<at::Tensor>>& given)
      : LeanList(call, given.vec()) {}
};

lean::Scalar lean_scalar(const LeanCall& call, const at::Scalar& scalar);

template <>
struct LeanArgument<const lean::Scalar&, at::Scalar> {
  LeanArgument(const LeanCall& call, const at::Scalar& given) : value(lean_scalar(call, given)) {}
  const lean::Scalar& get() { return value; }
  void finish() {}

  lean::Scalar value;
};

template <>
struct LeanArgument<const std::optional<lean::Scalar>&, std::optional<at::Scalar>> {
  LeanArgument(const LeanCall& call, const std::optional<at::Scalar>& given) {
    if (given.has_value()) {
      value = lean_scalar(call, *given);
    }
  }
  const std::optional<lean::Scalar>& get() { return value; }
  void finish() {}

  std::optional<lean::Scalar> value;
};

// Enums have the same numbers on both sides.
template <class Taken, class Given>
struct LeanEnum {
  LeanEnum(const LeanCall&, const Given& given) : value(static_cast<Taken>(given)) {}
  Taken get() { return value; }
  void finish() {}

  Taken value;
};

template <class Taken, class Given>
struct LeanOptionalEnum {
  LeanOptionalEnum(const LeanCall&, const std::optional<Given>& given) {
    if (given.has_value()) {
      value = static_cast<Taken>(*given);
    }
  }
  std::optional<Taken> get() { return value; }
  void finish() {}

  std::optional<Taken> value;
};

template <>
struct LeanArgument<lean::ScalarType, at::ScalarType> : LeanEnum<lean::ScalarType, at::ScalarType> {
  using LeanEnum::LeanEnum;
};

template <>
struct LeanArgument<std::optional<lean::ScalarType>, std::optional<at::ScalarType>>
    : LeanOptionalEnum<lean::ScalarType, at::ScalarType> {
  using LeanOptionalEnum::LeanOptionalEnum;
};

template <>
struct LeanArgument<std::optional<lean::MemoryFormat>, std::optional<at::MemoryFormat>>
    : LeanOptionalEnum<lean::MemoryFormat, at::MemoryFormat> {
  using LeanOptionalEnum::LeanOptionalEnum;
};

// Lists of numbers.
template <class Element>
struct LeanArgument<lean::ArrayRef<Element>, at::ArrayRef<Element>> {
  LeanArgument(const LeanCall&, at::ArrayRef<Element> given) : value(given.data(), given.size()) {}
  lean::ArrayRef<Element> get() { return value; }
  void finish() {}

  lean::ArrayRef<Element> value;
};

template <size_t kSize>
struct LeanArgument<lean::ArrayRef<bool>, std::array<bool, kSize>> {
  LeanArgument(const LeanCall&, const std::array<bool, kSize>& given) : value(given.data(), kSize) {}
  lean::ArrayRef<bool> get() { return value; }
  void finish() {}

  lean::ArrayRef<bool> value;
};

template <class Element, class Given>
struct LeanOptionalList {
  LeanOptionalList(const LeanCall&, const Given& given) {
    if (given.has_value()) {
      value.emplace(given->data(), given->size());
    }
  }
  std::optional<lean::ArrayRef<Element>> get() { return value; }
  void finish() {}

  std::optional<lean::ArrayRef<Element>> value;
};

template <class Element>
struct LeanArgument<std::optional<lean::ArrayRef<Element>>, at::OptionalArrayRef<Element>>
    : LeanOptionalList<Element, at::OptionalArrayRef<Element>> {
  using LeanOptionalList<Element, at::OptionalArrayRef<Element>>::LeanOptionalList;
};

template <class Element>
struct LeanArgument<std::optional<lean::ArrayRef<Element>>, std::optional<at::ArrayRef<Element>>>
    : LeanOptionalList<Element, std::optional<at::ArrayRef<Element>>> {
  using LeanOptionalList<Element, std::optional<at::ArrayRef<Element>>>::LeanOptionalList;
};

[[noreturn]] void throw_failed(const LeanCall& call, Error error);

// Runs a kernel that is bound to its arguments: its error, or Ok.
Error run_lean(c10::function_ref<void(KernelRuntimeContext&)> kernel);

// The kernel's error, or Ok.
template <class Result, class... Taken, class... Given>
Error call_lean(Result (*kernel)(KernelRuntimeContext&, Taken...), const LeanCall& call,
                const Given&... given) {
  static_assert(sizeof...(Taken) == sizeof...(Given));
  Pack<LeanArgument<Taken, Given>...> arguments{{LeanArgument<Taken, Given>(call, given)}...};
  const Error error = run_lean([&](KernelRuntimeContext& context) {
    arguments.apply([&](auto&... argument) { kernel(context, argument.get()...); });
  });
  if (C10_LIKELY(error == Error::Ok)) {
    arguments.apply([](auto&... argument) { (argument.finish(), ...); });
  }
  return error;
}

}  // namespace detail

// Runs a lean kernel on the arguments of its operator, in the schema's order. Throws what PyTorch would for
// the kernel's error, with the operator's name, the kernel's and what it logged: RuntimeError, IndexError
// where the kernel says NotFound, or NotImplementedError where it says NotSupported.
template <class Kernel, class... Given>
inline void lean_call(Kernel* kernel, const LeanCall& call, const Given&... given) {
  const auto error = detail::call_lean(kernel, call, given...);
  if (C10_UNLIKELY(error != detail::Error::Ok)) {
    detail::throw_failed(call, error);
  }
}

}  // namespace opsmith
