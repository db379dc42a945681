// The arithmetic that both peers of benchmarks/dispatch.py share: float32 addition of like tensors, nothing
// else.
#pragma once

#include <opsmith/host_access.h>

#include <ATen/core/Tensor.h>

namespace lean {

inline void check_operands(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.scalar_type() == at::kFloat && other.scalar_type() == at::kFloat, "add takes float32");
  TORCH_CHECK(self.sizes() == other.sizes(), "add takes operands of one shape");
  TORCH_CHECK(self.is_contiguous() && other.is_contiguous(), "add takes contiguous operands");
}

inline void add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                const at::Tensor& out) {
  const float scale = alpha.to<float>();
  const auto* a = opsmith::host_data<float>(self);
  const auto* b = opsmith::host_data<float>(other);
  auto* result = opsmith::host_data<float>(out);
  for (int64_t i = 0, n = self.numel(); i < n; ++i) {
    result[i] = a[i] + scale * b[i];
  }
}

}  // namespace lean
