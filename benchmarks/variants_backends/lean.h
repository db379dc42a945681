// The arithmetic that both peers of benchmarks/variants.py share: float32 operands of one shape, contiguous,
// nothing else.
#pragma once

#include <opsmith/host_access.h>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace lean {

inline void check_operands(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.scalar_type() == at::kFloat && other.scalar_type() == at::kFloat, "only float32 is taken");
  TORCH_CHECK(self.sizes() == other.sizes(), "only operands of one shape are taken");
  TORCH_CHECK(self.is_contiguous() && other.is_contiguous(), "only contiguous operands are taken");
}

// out = self + scale * other
inline void add(const at::Tensor& self, const at::Tensor& other, float scale, const at::Tensor& out) {
  const auto* a = opsmith::host_data<float>(self);
  const auto* b = opsmith::host_data<float>(other);
  auto* result = opsmith::host_data<float>(out);
  for (int64_t i = 0, n = self.numel(); i < n; ++i) {
    result[i] = a[i] + scale * b[i];
  }
}

// The structured kernel of mul, for both sides: the iterator's only output is the product of its inputs.
inline void mul(at::TensorIteratorBase& iter) {
  TORCH_CHECK(iter.dtype(0) == at::kFloat && iter.is_contiguous(), "only contiguous float32 is taken");
  const auto* a = static_cast<const float*>(opsmith::host_pointer(iter.data_ptr(1)));
  const auto* b = static_cast<const float*>(opsmith::host_pointer(iter.data_ptr(2)));
  auto* result = static_cast<float*>(opsmith::host_pointer(iter.data_ptr(0)));
  for (int64_t i = 0, n = iter.numel(); i < n; ++i) {
    result[i] = a[i] * b[i];
  }
}

}  // namespace lean
