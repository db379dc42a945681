// The same kernel as an operator of PyTorch, with schemas and a fake implementation of our own.
#include "custom_linear.h"

#include <opsmith/wrap_to_aten.h>

#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace {

at::Tensor custom_linear_functional(const at::Tensor& weight, const at::Tensor& input,
                                    const std::optional<at::Tensor>& bias) {
  at::Tensor out = at::empty({0}, input.options());
  WRAP_TO_ATEN(custom_linear::custom_linear_out, 3)(weight, input, bias, out);
  return out;
}

// In symbolic sizes, so that torch.export takes dynamic shapes.
at::Tensor custom_linear_meta(const at::Tensor& weight, const at::Tensor& input,
                              const std::optional<at::Tensor>&) {
  c10::SymDimVector sizes(input.sym_sizes().begin(), input.sym_sizes().end());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, input.options());
}

}  // namespace

TORCH_LIBRARY(myop, m) {
  m.def("custom_linear(Tensor weight, Tensor input, Tensor? bias=None) -> Tensor");
  m.def("custom_linear.out(Tensor weight, Tensor input, Tensor? bias=None, *, Tensor(a!) out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(myop, CPU, m) {
  m.impl("custom_linear", &custom_linear_functional);
  m.impl("custom_linear.out", WRAP_TO_ATEN(custom_linear::custom_linear_out, 3));
}

TORCH_LIBRARY_IMPL(myop, Meta, m) {
  m.impl("custom_linear", &custom_linear_meta);
}
