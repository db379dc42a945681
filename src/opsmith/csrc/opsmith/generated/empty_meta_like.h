// torch.empty_like on the meta device, whose kernel PyTorch has in Python.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

namespace opsmith {

// The sizes, which are no symbols, and, where that leaves no gaps, the strides of `tensor`.
inline at::Tensor empty_meta_like(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.is_non_overlapping_and_dense()) {
    return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), dtype);
  }
  return at::detail::empty_strided_meta(tensor.sizes(),
                                        at::infer_dense_strides(tensor.sizes(), tensor.strides()), dtype);
}

}  // namespace opsmith
