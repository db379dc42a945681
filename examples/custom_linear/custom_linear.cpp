// A linear layer as one kernel for ExecuTorch and PyTorch: weight [out, in], input [..., in], bias [out].
#include "custom_linear.h"

#include <vector>

#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/kernel/kernel_includes.h>

namespace custom_linear {

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

Tensor& custom_linear_out(KernelRuntimeContext& ctx, const Tensor& weight, const Tensor& input,
                          const std::optional<Tensor>& bias, Tensor& out) {
  // Common dtype.
  ET_KERNEL_CHECK_MSG(ctx,
                      weight.scalar_type() == ScalarType::Float && input.scalar_type() == ScalarType::Float,
                      NotSupported, out, "weight and input are Float");
  // Shapes.
  ET_KERNEL_CHECK_MSG(ctx,
                      weight.dim() == 2 && input.dim() >= 1 && input.size(input.dim() - 1) == weight.size(1),
                      InvalidArgument, out, "weight is [out, in] and input [..., in]");
  ET_KERNEL_CHECK_MSG(ctx, !bias.has_value() || bias->numel() == weight.size(0), InvalidArgument, out,
                      "bias is [out]");
  // Resize.
  std::vector<SizesType> sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = static_cast<SizesType>(weight.size(0));
  ET_KERNEL_CHECK(ctx, executorch::runtime::resize_tensor(out, {sizes.data(), sizes.size()}) == Error::Ok,
                  InvalidArgument, out);
  // Compute.
  const ssize_t features = weight.size(1);
  const ssize_t outputs = weight.size(0);
  const float* row = input.const_data_ptr<float>();
  float* result = out.mutable_data_ptr<float>();
  for (ssize_t rows = out.numel() / (outputs > 0 ? outputs : 1); rows > 0; --rows, row += features) {
    const float* w = weight.const_data_ptr<float>();
    for (ssize_t i = 0; i < outputs; ++i, w += features) {
      float sum = bias.has_value() ? bias->const_data_ptr<float>()[i] : 0;
      for (ssize_t j = 0; j < features; ++j) {
        sum += row[j] * w[j];
      }
      *result++ = sum;
    }
  }
  return out;
}

}  // namespace custom_linear

EXECUTORCH_LIBRARY(myop, "custom_linear.out", custom_linear::custom_linear_out);
