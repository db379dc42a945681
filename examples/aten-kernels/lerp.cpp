// lerp: structured kernels on an iterator, whose operands ATen's meta has promoted and shaped. Each function
// only says what to calculate.
#include <opsmith/pointwise.h>

#include <cmath>

#include <ATen/core/Tensor.h>

namespace example {
namespace {

// From the nearer end, so that weights 0 and 1 give the ends exactly.
template <class C>
C interpolate(C start, C end, C weight) {
  const C difference = end - start;
  return std::fabs(weight) < C(0.5) ? start + weight * difference : end - difference * (C(1) - weight);
}

}  // namespace

void lerp_scalar(at::TensorIteratorBase& iter, const at::Scalar& weight) {
  opsmith::binary<opsmith::Floating>(iter, [&]<class C>() {
    return [weight = weight.to<C>()](C a, C b) { return interpolate(a, b, weight); };
  });
}

void lerp_tensor(at::TensorIteratorBase& iter) {
  opsmith::ternary<opsmith::Floating>(
      iter, []<class C>() { return [](C a, C b, C w) { return interpolate(a, b, w); }; });
}

}  // namespace example
