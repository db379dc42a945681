// Kernels on at::Tensor that fail.
#include "failure_due.h"

#include <opsmith/host_access.h>

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

namespace failing {

at::Tensor relu(const at::Tensor& self) {
  TORCH_CHECK(!failure_is_due(), "the rectifier is broken");
  const at::Tensor input = self.contiguous();
  at::Tensor result = at::empty_like(input);
  const float* const from = opsmith::host_data<const float>(input);
  float* const to = opsmith::host_data<float>(result);
  for (int64_t i = 0; i < input.numel(); ++i) {
    to[i] = std::max(from[i], 0.0f);
  }
  return result;
}

at::Tensor& mean_out(const at::Tensor& self, at::OptionalIntArrayRef /*dim*/, bool /*keepdim*/,
                     std::optional<at::ScalarType> /*dtype*/, at::Tensor& out) {
  TORCH_CHECK(!failure_is_due(), "the averager is broken");
  const float* const from = opsmith::host_data<const float>(self);
  float sum = 0;
  for (int64_t i = 0; i < self.numel(); ++i) {
    sum += from[i];
  }
  *opsmith::host_data<float>(out) = sum / static_cast<float>(self.numel());
  return out;
}

}  // namespace failing
