// Checks of the arguments before generated code gives them to a lean kernel: the dtypes and dim orders that
// the kernel's manifest declares, and whether PyTorch's meta function could object at all.
#pragma once

#include <bridge/lean_tensor.h>
#include <opsmith/generated/derived.h>
#include <opsmith/generated/dtype_set.h>
#include <opsmith/generated/each_tensor.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

#include <ATen/core/Tensor.h>

namespace opsmith {

namespace detail {

inline bool is_python_scalar(const at::TensorBase& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// The Tensor that an argument has, if it has one.
inline const at::Tensor* given_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? &tensor : nullptr;
}
inline const at::Tensor* given_tensor(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? given_tensor(*tensor) : nullptr;
}

// The dtype in which PyTorch computes with `tensors`, one of which is a Python scalar: the result's, or Float
// for half precision. Null stands for an argument that is not given.
c10::ScalarType scalar_dtype_of(std::initializer_list<const at::Tensor*> tensors);

// The dtype of the result of `tensors`.
c10::ScalarType result_dtype_of(std::initializer_list<const at::Tensor*> tensors);

template <class... Arguments>
bool any_python_scalar(const Arguments&... arguments) {
  const auto is_one = [](const at::Tensor* tensor) { return tensor != nullptr && is_python_scalar(*tensor); };
  return (is_one(given_tensor(arguments)) || ...);
}

}  // namespace detail

// Whether lean tensors can describe all Tensors among `arguments`.
template <class... Arguments>
bool are_lean(const Arguments&... arguments) {
  bool all = true;
  const auto look = [&](const at::TensorBase& tensor) { all = all && LeanInput::describes(tensor); };
  (each_tensor(arguments, look), ...);
  return all;
}

namespace detail {

inline bool is_real(const at::Scalar& scalar) {
  return !scalar.isComplex();
}
inline bool is_real(const std::optional<at::Scalar>& scalar) {
  return !scalar.has_value() || is_real(*scalar);
}

}  // namespace detail

// Whether lean Scalars can hold `scalars`, of which some may not be given.
template <class... Scalars>
bool are_real(const Scalars&... scalars) {
  return (detail::is_real(scalars) && ...);
}

// Whether all Tensors among `arguments` have the same dtype, of `dtypes`. Python scalars have none.
template <class... Arguments>
bool share_dtype(const DtypeSet& dtypes, const Arguments&... arguments) {
  c10::ScalarType shared = c10::ScalarType::Undefined;
  bool same = true;
  const auto look = [&](const at::TensorBase& tensor) {
    if (detail::is_python_scalar(tensor)) {
      return;
    }
    const c10::ScalarType dtype = tensor.scalar_type();
    same = same && (shared == c10::ScalarType::Undefined || shared == dtype);
    shared = dtype;
  };
  (each_tensor(arguments, look), ...);
  return same && (shared == c10::ScalarType::Undefined || dtypes.has(shared));
}

// Whether an operand has one of `dtypes`, if it is given. A Python scalar has the dtype of the result of
// `operands`, among which it is.
template <class Operand, class... Operands>
bool takes(const DtypeSet& dtypes, const Operand& operand, const Operands&... operands) {
  if (C10_UNLIKELY(detail::any_python_scalar(operand))) {
    return dtypes.has(detail::result_dtype_of({detail::given_tensor(operands)...}));
  }
  return dtypes.has(operand);
}

// Whether a result as a meta kernel describes it goes into `out` without a cast.
inline bool fits(const at::Tensor& out, const at::Tensor& meta) {
  return !meta.defined() || out.scalar_type() == meta.scalar_type();
}

inline bool share_dtype(const at::Tensor& first, const at::Tensor& second) {
  return first.scalar_type() == second.scalar_type();
}

// Whether `tensor` has the dimensions `order` from the outermost in memory to the innermost, without gaps.
bool has_dim_order(const at::Tensor& tensor, std::initializer_list<uint8_t> order);

// The dtype of Python scalars among `tensors` for a lean kernel; Undefined where there is none.
template <class... Tensors>
c10::ScalarType scalar_dtype(const Tensors&... tensors) {
  if (C10_LIKELY(!detail::any_python_scalar(tensors...))) {
    return c10::ScalarType::Undefined;
  }
  return detail::scalar_dtype_of({detail::given_tensor(tensors)...});
}

// Whether the result of a pointwise operator on `operands` goes into `out` as it is: all alike, `out` has
// the first's shape and `dtype`, and writing to it cannot disturb an operand that is yet to be read.
template <class... Operands>
bool elementwise_out(const at::Tensor& out, c10::ScalarType dtype, const at::Tensor& first,
                     const Operands&... operands) {
  return out.scalar_type() == dtype && out.is_contiguous() && out.sizes() == first.sizes() &&
         out.device() == first.device() && elementwise_into(first, operands...) &&
         detail::is_clear_of(first, out) && (detail::is_clear_of(operands, out) && ...);
}

}  // namespace opsmith
