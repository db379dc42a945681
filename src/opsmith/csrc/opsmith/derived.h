// What derived variants share: allocating a result, writing a result back, and the contract of each variant.
//
// A derived in-place or out variant must refuse what PyTorch's own would: a result type that does not fit,
// another shape in place, overlapping memory. Where the group is structured, PyTorch's meta function checks
// all of it; the elementwise_*() functions below recognise the common case in which it could not object, in a
// few instructions.
#pragma once

#include <opsmith/dtype_set.h>
#include <opsmith/each_tensor.h>
#include <opsmith/empty.h>
#include <opsmith/structured.h>

#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace opsmith {

namespace detail {

inline constexpr DtypeSet kFloatingDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

inline bool is_like(const at::Tensor& tensor, const at::Tensor& first) {
  return tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
         tensor.sizes() == first.sizes() && tensor.is_contiguous();
}

inline bool is_like(const std::optional<at::Tensor>& tensor, const at::Tensor& first) {
  return !tensor.has_value() || !tensor->defined() || is_like(*tensor, first);
}

inline bool is_clear_of(const at::Tensor& tensor, const at::Tensor& self, size_t bytes) {
  const auto* a = static_cast<const char*>(tensor.const_data_ptr());
  const auto* b = static_cast<const char*>(self.const_data_ptr());
  return a == b || a + bytes <= b || b + bytes <= a;
}

inline bool is_clear_of(const std::optional<at::Tensor>& tensor, const at::Tensor& self, size_t bytes) {
  return !tensor.has_value() || !tensor->defined() || is_clear_of(*tensor, self, bytes);
}

}  // namespace detail

// Whether all operands are contiguous, with one floating dtype, one shape and one device, so that the result
// of a pointwise operator has that shape and is contiguous too.
template <class... Operands>
inline bool elementwise_alike(const at::Tensor& first, const Operands&... others) {
  return detail::kFloatingDtypes.has(first.scalar_type()) && first.is_contiguous() &&
         (detail::is_like(others, first) && ...);
}

// Whether, beyond that, writing to `self` cannot disturb an operand that is yet to be read.
template <class... Operands>
inline bool elementwise_into(const at::Tensor& self, const Operands&... others) {
  if (!elementwise_alike(self, others...)) {
    return false;
  }
  [[maybe_unused]] const size_t bytes = self.nbytes();
  return (detail::is_clear_of(others, self, bytes) && ...);
}

// Tensors of the meta device with the same sizes, strides and dtype: what a meta kernel is asked with.
at::Tensor meta(const at::Tensor& tensor);
std::optional<at::Tensor> meta(const std::optional<at::Tensor>& tensor);
std::vector<at::Tensor> meta(const at::ITensorListRef& tensors);
c10::List<std::optional<at::Tensor>> meta(const c10::List<std::optional<at::Tensor>>& tensors);
inline constexpr c10::DispatchKeySet kMeta{c10::DispatchKey::Meta};

// A tensor on the current device with the sizes, strides and dtype of a meta kernel's result.
at::Tensor allocate_as(const at::Tensor& meta);

// Writes a functional kernel's result to `out`: the dtype must be castable; another size is resized with
// PyTorch's warning. Throws RuntimeError, naming the operator.
void write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out);

// Writes a functional kernel's result back to `self`: same shape, castable dtype.
void write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self);

// The contract of an in-place operator whose result would be shaped and typed as the meta Tensor says.
void check_inplace_result(const char* operator_name, const at::Tensor& meta, const at::Tensor& self);

namespace detail {
void check_overlap(const at::TensorBase& self, const at::TensorBase& operand);
at::Tensor result_in(const at::Tensor& out, const at::Tensor& meta, bool shares_memory);
}  // namespace detail

// Throws when writing to `self` while `operand` is read would be wrong, because they overlap in part.
template <class Operand>
void check_overlap(const at::Tensor& self, const Operand& operand) {
  each_tensor(operand, [&](const at::TensorBase& tensor) { detail::check_overlap(self, tensor); });
}

// Where an in-place kernel may compute the result that `meta` describes: in `out` itself, resized, if that
// has the dtype and shares memory with no operand; else in a new Tensor.
template <class... Operands>
at::Tensor result_in(const at::Tensor& out, const at::Tensor& meta, const Operands&... operands) {
  bool shares_memory = false;
  (each_tensor(operands, [&](const at::TensorBase& operand) { shares_memory |= operand.is_alias_of(out); }),
   ...);
  return detail::result_in(out, meta, shares_memory);
}

}  // namespace opsmith
