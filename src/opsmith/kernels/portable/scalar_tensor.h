// A number as a Tensor without dimensions, so that operators with a Scalar run the loops of those with a
// Tensor.
#pragma once

#include "../common/dtypes.h"

namespace opsmith::portable {

// Whether a floating-point number is 2^63, to which the largest Long is rounded and which is none: ATen lets
// it pass as one, ExecuTorch does not.
bool is_past_long(const Scalar& value, ScalarType dtype);

// Whether the dtype cannot hold the number, as ATen checks where it does not promote.
bool overflows(const Scalar& value, ScalarType dtype);

// Whether it can; rejects the call where not.
bool fits(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype);

// The same, and in ExecuTorch no number below 0 for Byte, to which ATen takes it modulo 256.
bool holds(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype);

// The only element of a Tensor of any of the dtypes RealB.
Scalar element_of(const Tensor& tensor);

// The Scalar, converted to `dtype` once. Lives on the stack of the kernel that made it.
class ScalarTensor {
 public:
  ScalarTensor(const Scalar& value, ScalarType dtype);
  ScalarTensor(const ScalarTensor&) = delete;
  ScalarTensor& operator=(const ScalarTensor&) = delete;

  operator const Tensor&() const { return tensor_; }  // NOLINT: it stands for its Tensor

 private:
  alignas(8) unsigned char value_[8] = {};
  executorch::aten::SizesType sizes_[1] = {};  // without elements, but not null
  executorch::aten::DimOrderType dim_order_[1] = {};
  executorch::aten::StridesType strides_[1] = {};
  executorch::aten::TensorImpl impl_;
  Tensor tensor_;
};

}  // namespace opsmith::portable
