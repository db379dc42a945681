// The kernels for the meta device that opsmith derives for custom operators, by the plan's rules. They see
// tensors without data, whose sizes may be symbols (torch.compile with dynamic shapes), so they never ask for
// a number.
#pragma once

#include <opsmith/generated/each_tensor.h>

#include <vector>

#include <ATen/core/Tensor.h>

namespace opsmith {

// A result like `tensor`: its sizes, dtype, and its strides where they leave no gaps.
at::Tensor meta_like(const at::Tensor& tensor);
std::vector<at::Tensor> meta_like(at::TensorList tensors);

// The result of a pointwise operator: the operands' broadcast sizes and their common dtype
// (torch.result_type). It has the strides of the first operand of these sizes, else is contiguous.
at::Tensor meta_broadcast(at::TensorList operands);

template <class... Operands>
at::Tensor meta_broadcast_of(const Operands&... operands) {
  std::vector<at::Tensor> tensors;
  (each_tensor(operands, [&](const at::TensorBase& tensor) { tensors.emplace_back(tensor); }), ...);
  return meta_broadcast(tensors);
}

// The contracts of an out and of an in-place variant whose result would be `result`: `out` is resized; `self`
// must have the result's sizes; both must be able to hold its dtype. Throw RuntimeError, naming the operator.
void meta_write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out);
void meta_write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self);

}  // namespace opsmith
