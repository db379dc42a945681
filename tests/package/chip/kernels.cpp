#include <opsmith/host_access.h>
#include <opsmith/pointwise.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm_meta.h>

namespace mychip {

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  opsmith::binary<opsmith::Types<float, double>>(
      iter, [&]<class C>() { return [scale = alpha.to<C>()](C a, C b) { return a + scale * b; }; });
}

void mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  const auto* a = opsmith::host_data<float>(self);
  const auto* b = opsmith::host_data<float>(mat2);
  auto* result = opsmith::host_data<float>(out);
  for (int64_t i = 0; i < out.size(0); ++i) {
    for (int64_t j = 0; j < out.size(1); ++j) {
      float sum = 0;
      for (int64_t k = 0; k < self.size(1); ++k) {
        sum += a[i * self.stride(0) + k * self.stride(1)] * b[k * mat2.stride(0) + j * mat2.stride(1)];
      }
      result[i * out.stride(0) + j * out.stride(1)] = sum;
    }
  }
}

// In the place of PyTorch's meta function: `structured_meta: override`.
void mm_meta(at::meta::structured_mm& op, const at::Tensor& self, const at::Tensor& mat2) {
  TORCH_CHECK(self.size(0) <= 1024, "mychip multiplies up to 1024 rows, not ", self.size(0));
  op.meta(self, mat2);
}

}  // namespace mychip
