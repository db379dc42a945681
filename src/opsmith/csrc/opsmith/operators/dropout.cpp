// Dropout from the device's own random numbers. See dropout.h.
#include <opsmith/operators/dropout.h>

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>

namespace opsmith {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double kept = 1. - p;
  const double scale = kept == 0. ? 0. : 1. / kept;
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(kept);
  at::Tensor output = at::mul(input, mask);
  output.mul_(scale);
  return {std::move(output), std::move(mask)};
}

}  // namespace opsmith
