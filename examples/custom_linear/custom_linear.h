#pragma once

#include <optional>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace custom_linear {

// out[..., o] = sum over i of input[..., i] * weight[o, i], plus bias[o]; all Float.
executorch::aten::Tensor& custom_linear_out(executorch::runtime::KernelRuntimeContext& ctx,
                                            const executorch::aten::Tensor& weight,
                                            const executorch::aten::Tensor& input,
                                            const std::optional<executorch::aten::Tensor>& bias,
                                            executorch::aten::Tensor& out);

}  // namespace custom_linear
