// PyTorch's own meta functions of structured operators. The definition is generated, for the adapter only:
// see emit/structured_metas.py.
#pragma once

#include <string>

#include <ATen/core/boxing/KernelFunction.h>

namespace opsmith {

// The meta function that checks and shapes the operator "aten::add.Tensor", whose arguments are meta Tensors;
// null where it is not structured.
const c10::KernelFunction* structured_meta(const std::string& operator_name);

}  // namespace opsmith
