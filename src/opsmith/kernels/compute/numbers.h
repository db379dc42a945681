// Numbers of a call as kernels' arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "launch.h"

namespace opsmith::compute {

// Functions of C that expressions may call, beside OpenCL's own.
extern const char* const kFunctions;

// `number` in the type that elements of `dtype` are computed in.
void add_number(Arguments& arguments, const at::Scalar& number, at::ScalarType dtype);

// The value of a tensor of one element on the CPU.
at::Scalar host_scalar(const at::TensorBase& tensor);

}  // namespace opsmith::compute
