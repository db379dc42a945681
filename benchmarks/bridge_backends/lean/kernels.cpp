// The same kernel on lean tensors.
#include <executorch/runtime/kernel/kernel_includes.h>

namespace lean::native {

using executorch::aten::Scalar;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

Tensor& add_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  ET_KERNEL_CHECK(ctx, self.sizes() == other.sizes(), InvalidArgument, out);
  ET_KERNEL_CHECK(ctx, executorch::runtime::resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument,
                  out);
  const float scale = alpha.isFloatingPoint() ? static_cast<float>(alpha.to<double>())
                                              : static_cast<float>(alpha.to<int64_t>());
  const float* a = self.const_data_ptr<float>();
  const float* b = other.const_data_ptr<float>();
  float* result = out.mutable_data_ptr<float>();
  for (ssize_t i = 0, n = self.numel(); i < n; ++i) {
    result[i] = a[i] + scale * b[i];
  }
  return out;
}

}  // namespace lean::native
