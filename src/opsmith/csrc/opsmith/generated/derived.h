// Helpers of derived variants: allocating a result, writing a result back, and the contract of each variant.
//
// A derived in-place or out variant must refuse what PyTorch's own would: a result type that does not fit,
// another shape in place, overlapping memory. Where the group is structured, PyTorch's meta function checks
// all of it; the elementwise_*() functions below recognise the common case in which it could not object, in a
// few instructions.
#pragma once

#include <opsmith/generated/dtype_set.h>
#include <opsmith/generated/each_tensor.h>
#include <opsmith/device/empty.h>

#include <optional>
#include <tuple>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/DimVector.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace opsmith {

// Whether elements of `tensor` share memory, as those of an expanded one do.
inline bool shares_elements(const at::TensorBase& tensor) {
  return !tensor.is_non_overlapping_and_dense() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

namespace detail {

inline constexpr DtypeSet kFloatingDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

// Whether the strides are those of a new tensor: dimensions of one element or of none may have others.
inline bool is_strided_as_new(const at::Tensor& tensor) {
  int64_t stride = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
    if (tensor.stride(dim) != stride) {
      return false;
    }
    stride *= std::max<int64_t>(tensor.size(dim), 1);
  }
  return tensor.numel() != 0;
}

// Whether `tensor` is a real number of Python's, or broadcasts to the sizes of `first`, and the result is
// strided as a new tensor of those.
bool broadcasts_to(const at::Tensor& first, const at::Tensor& tensor);

inline bool is_like(const at::Tensor& tensor, const at::Tensor& first) {
  if (C10_LIKELY(tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
                 tensor.sizes() == first.sizes())) {
    return tensor.is_contiguous();
  }
  return broadcasts_to(first, tensor);
}

inline bool is_like(const std::optional<at::Tensor>& tensor, const at::Tensor& first) {
  return !tensor.has_value() || !tensor->defined() || is_like(*tensor, first);
}

// A complex Scalar makes the result complex, and PyTorch strides the result of a Tensor and a Scalar by the
// Tensor's strides, even those that say nothing.
inline bool is_like(const at::Scalar& scalar, const at::Tensor& first) {
  return !scalar.isComplex() && is_strided_as_new(first);
}

inline bool is_like(const std::optional<at::Scalar>& scalar, const at::Tensor&) {
  return !scalar.has_value() || !scalar->isComplex();
}

inline bool is_clear_of(const at::Tensor& tensor, const at::Tensor& self) {
  // As PyTorch's own check does: what has another storage has other memory.
  const auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (C10_LIKELY(tensor.is_same(self) ||
                 storage != self.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())) {
    return true;
  }
  const auto* a = static_cast<const char*>(tensor.const_data_ptr());
  const auto* b = static_cast<const char*>(self.const_data_ptr());
  if (a == b) {
    return tensor.nbytes() == self.nbytes() && tensor.strides() == self.strides();
  }
  return a + tensor.nbytes() <= b || b + self.nbytes() <= a;
}

inline bool is_clear_of(const std::optional<at::Tensor>& tensor, const at::Tensor& self) {
  return !tensor.has_value() || !tensor->defined() || is_clear_of(*tensor, self);
}

inline bool is_clear_of(const at::Scalar&, const at::Tensor&) {
  return true;
}

inline bool is_clear_of(const std::optional<at::Scalar>&, const at::Tensor&) {
  return true;
}

}  // namespace detail

// Whether all operands are contiguous, with one floating dtype and one device, broadcast to the first's
// shape, and no number is complex, so that the result of a pointwise operator has that shape, is contiguous
// and of a known dtype.
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
  return (detail::is_clear_of(others, self) && ...);
}

// Tensors of the meta device with the same sizes, strides and dtype: what a meta kernel is asked with.
at::Tensor meta(const at::Tensor& tensor);
std::optional<at::Tensor> meta(const std::optional<at::Tensor>& tensor);
std::vector<at::Tensor> meta(const at::ITensorListRef& tensors);
c10::List<std::optional<at::Tensor>> meta(const c10::List<std::optional<at::Tensor>>& tensors);
inline constexpr c10::DispatchKeySet kMeta{c10::DispatchKey::Meta};
inline const c10::Device kMetaDevice{c10::DeviceType::Meta};

// A tensor on the current device with the sizes, dtype and, where no elements share memory, strides of a meta
// kernel's result; undefined for an undefined one, which is a result that the arguments did not ask for.
// Throws NotImplementedError for another layout than strided.
at::Tensor allocate_as(const at::Tensor& meta);
std::vector<at::Tensor> allocate_as(at::TensorList metas);

// A new tensor with the same content, for a kernel that changes its argument.
at::Tensor copy_of(const at::Tensor& tensor);
std::vector<at::Tensor> copy_of(at::TensorList tensors);

// The operand on which an in-place kernel computes `result`: `result` itself with the content of `self`,
// broadcast; or, where the result's dtype cannot hold self (x < y is Bool), a new tensor of self's dtype.
at::Tensor operand_in(const at::Tensor& result, const at::Tensor& self);
std::vector<at::Tensor> operand_in(at::TensorList results, at::TensorList selves);

// Gives `result` what the kernel wrote to its operand.
void finish(const at::Tensor& result, const at::Tensor& operand);
void finish(at::TensorList results, at::TensorList operands);

// Writes a functional kernel's result to `out`: the dtype must be castable; another size is resized with
// PyTorch's warning; `out` may not overlap itself. Nothing to do where the result is undefined or is `out`.
// Throws RuntimeError, naming the operator. Lists must be as long as each other.
void write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out);
void write_out(const char* operator_name, at::TensorList results, at::TensorList outs);

// The same for an out variant that torchgen wrote: `out` has the result's dtype.
void write_same_dtype(const char* operator_name, const at::Tensor& result, const at::Tensor& out);
void write_same_dtype(const char* operator_name, at::TensorList results, at::TensorList outs);

// Writes a functional kernel's result back to `self`: same shape, castable dtype.
void write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self);
void write_inplace(const char* operator_name, at::TensorList results, at::TensorList selves);

// The contract of an in-place operator whose result would be shaped and typed as the meta Tensor says.
void check_inplace_result(const char* operator_name, const at::Tensor& meta, const at::Tensor& self);
void check_inplace_result(const char* operator_name, at::TensorList metas, at::TensorList selves);

namespace detail {
void check_overlap(const at::TensorBase& self, const at::TensorBase& operand);
void check_no_overlap(const at::TensorBase& self, const at::TensorBase& operand);
at::Tensor result_in(const at::Tensor& out, const at::Tensor& meta, bool shares_memory);
void check_lengths(const char* operator_name, size_t results, size_t given);
[[noreturn]] void throw_shape(const char* operator_name, at::IntArrayRef result, at::IntArrayRef given);
}  // namespace detail

// A Tensor of the sizes that `out` is resized to: `out` if it has them, else one in the same memory that is
// to be looked at only, for what overlaps it.
at::Tensor as_resized(const at::Tensor& out, at::IntArrayRef sizes);

// Throws where `out` is to have other sizes than it has and is an operand: TensorIterator resizes no operand.
template <class... Operands>
void check_not_resized(const char* operator_name, at::IntArrayRef sizes, const at::Tensor& out,
                       const Operands&... operands) {
  if (C10_UNLIKELY(out.sizes() != sizes)) {
    (each_tensor(operands,
                 [&](const at::TensorBase& operand) {
                   if (operand.is_same(out)) {
                     detail::throw_shape(operator_name, sizes, out.sizes());
                   }
                 }),
     ...);
  }
}

// Throws when writing to `self` while `operand` is read would be wrong, because they overlap in part.
template <class Operand>
void check_overlap(const at::Tensor& self, const Operand& operand) {
  each_tensor(operand, [&](const at::TensorBase& tensor) { detail::check_overlap(self, tensor); });
}

// The same for each Tensor of a list, and what is read for it: the Tensor at its place of another list.
template <class Operand>
void check_overlap(at::TensorList selves, const Operand& operand) {
  for (size_t index = 0; index < selves.size(); ++index) {
    if constexpr (std::is_same_v<Operand, at::TensorList>) {
      if (index < operand.size()) {
        check_overlap(selves[index], operand[index]);
      }
    } else {
      check_overlap(selves[index], operand);
    }
  }
}

// Throws when they overlap at all.
template <class Operand>
void check_no_overlap(const at::Tensor& self, const Operand& operand) {
  each_tensor(operand, [&](const at::TensorBase& tensor) { detail::check_no_overlap(self, tensor); });
}

// Whether index_put_ fills what one mask names with one value.
bool is_masked_fill(const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values,
                    bool accumulate);

// Gives `out` back its shape where the call raises after it was resized: nothing happened then.
class ShapeUnlessRaised {
 public:
  explicit ShapeUnlessRaised(const at::Tensor& out);
  ~ShapeUnlessRaised();
  ShapeUnlessRaised(const ShapeUnlessRaised&) = delete;
  ShapeUnlessRaised& operator=(const ShapeUnlessRaised&) = delete;

 private:
  const at::Tensor& out_;
  at::DimVector sizes_;
  at::DimVector strides_;
  int exceptions_;
};

// Where an in-place kernel may compute the result that `meta` describes: in `out` itself, resized, if that
// has the dtype and shares memory with no operand; else in a new Tensor.
template <class... Operands>
at::Tensor result_in(const at::Tensor& out, const at::Tensor& meta, const Operands&... operands) {
  bool shares_memory = false;
  (each_tensor(operands, [&](const at::TensorBase& operand) { shares_memory |= operand.is_alias_of(out); }),
   ...);
  return detail::result_in(out, meta, shares_memory);
}

template <class... Operands>
std::vector<at::Tensor> result_in(at::TensorList outs, at::TensorList metas, const Operands&... operands) {
  detail::check_lengths("out", metas.size(), outs.size());
  std::vector<at::Tensor> results;
  results.reserve(outs.size());
  for (size_t index = 0; index < outs.size(); ++index) {
    results.push_back(result_in(outs[index], metas[index], operands...));
  }
  return results;
}

}  // namespace opsmith
