// Lean kernels as operators of PyTorch on the CPU, without a device and without a description.
//
// Note [The shape of a result]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// An ExecuTorch kernel resizes its `out` before it computes. Given one of another shape it fails there, and
// the shape that it wanted is known: `out` is given that shape, and the kernel is called again. So out
// variants take any `out`, functional ones need no meta function, and the meta function itself is a call on
// zeros that ends at the resize.
#pragma once

#include <bridge/lean_call.h>
#include <lean/rejected_shape.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace opsmith {

namespace detail {

// The type of PyTorch's that stands for a kernel's parameter.
template <class Lean>
struct AtType {
  using type = Lean;
};
template <>
struct AtType<const lean::Tensor&> {
  using type = const at::Tensor&;
};
template <>
struct AtType<lean::Tensor&> {
  using type = at::Tensor&;
};
template <>
struct AtType<const std::optional<lean::Tensor>&> {
  using type = const std::optional<at::Tensor>&;
};
template <>
struct AtType<const lean::Scalar&> {
  using type = const at::Scalar&;
};
template <>
struct AtType<const std::optional<lean::Scalar>&> {
  using type = const std::optional<at::Scalar>&;
};
template <>
struct AtType<lean::TensorList> {
  using type = at::TensorList;
};
template <>
struct AtType<lean::ScalarType> {
  using type = at::ScalarType;
};
template <>
struct AtType<std::optional<lean::ScalarType>> {
  using type = std::optional<at::ScalarType>;
};
template <class Element>
struct AtType<lean::ArrayRef<Element>> {
  using type = at::ArrayRef<Element>;
};
template <class Element>
struct AtType<std::optional<lean::ArrayRef<Element>>> {
  using type = at::OptionalArrayRef<Element>;
};

template <class Lean>
using AtTypeOf = typename AtType<Lean>::type;

// The first Tensor among the arguments: its dtype is the result's.
template <class... Arguments>
const at::Tensor* first_tensor(const Arguments&... arguments) {
  const at::Tensor* first = nullptr;
  const auto look = [&](const auto& argument) {
    using Argument = std::decay_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, at::Tensor>) {
      first = first == nullptr ? &argument : first;
    } else if constexpr (std::is_same_v<Argument, at::TensorList>) {
      first = first == nullptr && !argument.empty() ? &argument.front() : first;
    }
  };
  (look(arguments), ...);
  return first;
}

// Arguments that ask a kernel for its result's shape: CPU Tensors of zeros in the place of meta ones.
at::Tensor zeros_like_meta(const at::Tensor& meta);
std::optional<at::Tensor> zeros_like_meta(const std::optional<at::Tensor>& meta);
std::vector<at::Tensor> zeros_like_meta(at::TensorList metas);
template <class Argument>
const Argument& zeros_like_meta(const Argument& argument) {
  return argument;
}

// For a list, the kernel's parameter again.
template <class Argument>
const Argument& as_given(const Argument& argument) {
  return argument;
}
inline at::TensorList as_given(const std::vector<at::Tensor>& tensors) {
  return tensors;
}

std::vector<int64_t> sizes_of(const RejectedShape& shape);

// Calls the kernel, whose last argument is `out`. The sizes that it wants, where `out` has others; else it
// ran.
template <auto kKernel, class... Inputs>
std::optional<std::vector<int64_t>> wanted_shape(const LeanCall& call, const at::Tensor& out,
                                                 const Inputs&... inputs) {
  take_rejected_shape();
  const Error error = call_lean(kKernel, call, inputs..., out);
  const RejectedShape shape = take_rejected_shape();
  if (shape.wanted) {
    return sizes_of(shape);
  }
  if (error != Error::Ok) {
    throw_failed(call, error);
  }
  return std::nullopt;
}

// Calls the kernel, and resizes `out` as it asks.
template <auto kKernel, class... Inputs>
void call_resizing(const LeanCall& call, at::Tensor& out, const Inputs&... inputs) {
  if (const auto sizes = wanted_shape<kKernel>(call, out, inputs...)) {
    out.resize_(*sizes);
    lean_call(kKernel, call, inputs..., out);
  }
}

template <class... Inputs>
at::Tensor scalar_result(const LeanCall& call, const Inputs&... inputs) {
  const at::Tensor* first = first_tensor(inputs...);
  TORCH_CHECK(first != nullptr, call.operator_name,
              " has no Tensor argument, whose dtype its result would have");
  return at::empty({}, first->options());
}

template <auto kKernel, const LeanCall& kCall, class Sequence>
struct CpuOperator;

template <class Result, class... Taken, Result (*kKernel)(KernelRuntimeContext&, Taken...),
          const LeanCall& kCall, size_t... kInputs>
struct CpuOperator<kKernel, kCall, std::index_sequence<kInputs...>> {
  using Parameters = std::tuple<Taken...>;

  // The out variant: as the kernel is, `out` last.
  static at::Tensor& out(AtTypeOf<std::tuple_element_t<kInputs, Parameters>>... inputs, at::Tensor& out) {
    call_resizing<kKernel>(kCall, out, inputs...);
    return out;
  }

  static at::Tensor functional(AtTypeOf<std::tuple_element_t<kInputs, Parameters>>... inputs) {
    at::Tensor out = scalar_result(kCall, inputs...);
    call_resizing<kKernel>(kCall, out, inputs...);
    return out;
  }

  static at::Tensor meta(AtTypeOf<std::tuple_element_t<kInputs, Parameters>>... inputs) {
    const auto sizes = shape(as_given(zeros_like_meta(inputs))...);
    return at::empty(sizes, first_tensor(inputs...)->options());
  }

  static at::Tensor& meta_out(AtTypeOf<std::tuple_element_t<kInputs, Parameters>>... inputs,
                              at::Tensor& out) {
    out.resize_(shape(as_given(zeros_like_meta(inputs))...));
    return out;
  }

 private:
  template <class... Inputs>
  static std::vector<int64_t> shape(const Inputs&... inputs) {
    const at::Tensor out = scalar_result(kCall, inputs...);
    return wanted_shape<kKernel>(kCall, out, inputs...).value_or(std::vector<int64_t>());
  }
};

template <auto kKernel>
struct KernelTraits;

template <class Result, class... Taken, Result (*kKernel)(KernelRuntimeContext&, Taken...)>
struct KernelTraits<kKernel> {
  static constexpr size_t kArguments = sizeof...(Taken);
  template <size_t kIndex>
  using Argument = std::tuple_element_t<kIndex, std::tuple<Taken...>>;
};

}  // namespace detail

// The variants of an operator on the CPU around the lean kernel `kKernel`, an out variant with `out` last;
// its functional variant's result has the dtype of the first Tensor. `kCall` says what messages name.
template <auto kKernel, const LeanCall& kCall>
using CpuOperator =
    detail::CpuOperator<kKernel, kCall,
                        std::make_index_sequence<detail::KernelTraits<kKernel>::kArguments - 1>>;

}  // namespace opsmith
