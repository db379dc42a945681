// The results that operators of ATen give, as Tensors without data: what a manifest's `meta:` names for the
// operators whose meta kernel PyTorch has in Python only, so that no call of a lean kernel enters Python.
//
// Each function says what PyTorch's meta kernel says: sizes, dtype, strides and, where it checks, the error;
// what its CPU kernel says where the two differ. Libraries that cover the operators share them.
#pragma once

#include <opsmith/generated/empty_meta_like.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace opsmith::meta_functions {

inline at::Tensor contiguous(at::IntArrayRef sizes, at::ScalarType dtype,
                             at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return at::detail::empty_meta(sizes, dtype, format);
}

// The sizes and, where that leaves no gaps, the strides of `tensor`: torch.empty_like.
inline at::Tensor like(const at::Tensor& tensor, at::ScalarType dtype) {
  return empty_meta_like(tensor, dtype);
}

inline at::Tensor like(const at::Tensor& tensor) {
  return like(tensor, tensor.scalar_type());
}

// The result of a Tensor and a number (pointwise.cpp).
at::Tensor with_scalar(const at::Tensor& self, const at::Scalar& other);

}  // namespace opsmith::meta_functions
