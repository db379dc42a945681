// The operators of optimisers. Structured kernels: ATen's meta has promoted and shaped the operands, and each
// function only says what to calculate.
#include <opsmith/pointwise.h>

#include <cmath>

#include <ATen/core/Tensor.h>

namespace opsmith::example_kernels {

void addcmul(at::TensorIteratorBase& iter, const at::Scalar& value) {
  ternary<Numeric>(iter, [&]<class C>() {
    return [value = value.to<C>()](C a, C b, C c) { return static_cast<C>(a + value * b * c); };
  });
}

void addcdiv(at::TensorIteratorBase& iter, const at::Scalar& value) {
  ternary<Floating>(
      iter, [&]<class C>() { return [value = value.to<C>()](C a, C b, C c) { return a + value * b / c; }; });
}

namespace {

// From the nearer end, so that weights 0 and 1 give the ends exactly.
template <class C>
C interpolate(C start, C end, C weight) {
  const C difference = end - start;
  return std::fabs(weight) < C(0.5) ? start + weight * difference : end - difference * (C(1) - weight);
}

}  // namespace

void lerp_scalar(at::TensorIteratorBase& iter, const at::Scalar& weight) {
  binary<Floating>(iter, [&]<class C>() {
    return [weight = weight.to<C>()](C a, C b) { return interpolate(a, b, weight); };
  });
}

void lerp_tensor(at::TensorIteratorBase& iter) {
  ternary<Floating>(iter, []<class C>() { return [](C a, C b, C w) { return interpolate(a, b, w); }; });
}

}  // namespace opsmith::example_kernels
