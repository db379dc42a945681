// One value in every element: what each device can do with its driver and with the kernels that it has.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace opsmith {

// aten::zero_: the driver's fill, of a tensor whose memory is one run of bytes.
at::Tensor& zero_(at::Tensor& self);

// aten::fill.Scalar_out of the dtypes in which kernels do not compute (complex, unsigned, of 8 bits): fill_
// of integers as wide. Raises RuntimeError where the dtype cannot hold the value.
at::Tensor& fill_scalar_out(const at::Tensor& self, const at::Scalar& value, at::Tensor& out);

}  // namespace opsmith
