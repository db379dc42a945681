// Ten kernels as one writes them first: loops, around which PyTorch checks and shapes. `startup.py` edits the
// constant of `add` and looks for it in the result.
#include <opsmith/host_access.h>
#include <opsmith/pointwise.h>

#include <cmath>

#include <ATen/core/Tensor.h>

namespace first {
namespace {

using Real = opsmith::Types<float, double>;

constexpr int kAdded = 0;

}  // namespace

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  opsmith::binary<Real>(
      iter, [&]<class C>() { return [scale = alpha.to<C>()](C a, C b) { return a + scale * b + kAdded; }; });
}

void sub(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  opsmith::binary<Real>(
      iter, [&]<class C>() { return [scale = alpha.to<C>()](C a, C b) { return a - scale * b; }; });
}

void mul(at::TensorIteratorBase& iter) {
  opsmith::binary<Real>(iter, []<class C>() { return [](C a, C b) { return a * b; }; });
}

void div(at::TensorIteratorBase& iter) {
  opsmith::binary<Real>(iter, []<class C>() { return [](C a, C b) { return a / b; }; });
}

void neg(at::TensorIteratorBase& iter) {
  opsmith::unary<Real>(iter, []<class C>() { return [](C a) { return -a; }; });
}

void exp(at::TensorIteratorBase& iter) {
  opsmith::unary<Real>(iter, []<class C>() { return [](C a) { return std::exp(a); }; });
}

void sqrt(at::TensorIteratorBase& iter) {
  opsmith::unary<Real>(iter, []<class C>() { return [](C a) { return std::sqrt(a); }; });
}

void tanh(at::TensorIteratorBase& iter) {
  opsmith::unary<Real>(iter, []<class C>() { return [](C a) { return std::tanh(a); }; });
}

void sigmoid(at::TensorIteratorBase& iter) {
  opsmith::unary<Real>(iter, []<class C>() { return [](C a) { return 1 / (1 + std::exp(-a)); }; });
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

}  // namespace first
