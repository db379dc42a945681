// The least that an extension of PyTorch can be: one operator with one kernel, and no device.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace {

constexpr int kAdded = 0;

at::Tensor add(const at::Tensor& self, const at::Tensor& other) {
  return self.add(other).add(kAdded);
}

}  // namespace

TORCH_LIBRARY(startup, m) {
  m.def("add(Tensor self, Tensor other) -> Tensor", &add);
}
