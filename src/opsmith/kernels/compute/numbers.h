// Numbers of a call as kernels' arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "launch.h"

namespace opsmith::compute {

// Functions of C that expressions may call, beside OpenCL's own.
extern const char* const kFunctions;

// `number` in the type that elements of `dtype` are computed in. Raises as PyTorch does where an integer
// dtype does not hold it.
void add_number(Arguments& arguments, const at::Scalar& number, at::ScalarType dtype);

// `number` as elements of the floating-point `dtype` hold it, or in any other one as it is. Raises as PyTorch
// does where they cannot hold it.
at::Scalar checked(const at::Scalar& number, at::ScalarType dtype);

// `number` as an element of `dtype` has it once it is stored: rounded, or wrapped around.
at::Scalar stored(const at::Scalar& number, at::ScalarType dtype);

// The value of a tensor of one element on the CPU.
at::Scalar host_scalar(const at::TensorBase& tensor);

}  // namespace opsmith::compute
