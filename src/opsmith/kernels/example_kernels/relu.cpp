// relu as a functional kernel, and its gradient as a structured one.
#include <opsmith/pointwise.h>

#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>

namespace opsmith::example_kernels {

// ATen has no structured relu: where no library has relu.out, it and relu_ are derived from this.
at::Tensor relu(const at::Tensor& self) {
  at::Tensor result;
  auto iter = at::TensorIterator::unary_op(result, self);
  unary<Numeric>(iter, []<class C>() {
    return [](C a) { return a < C(0) ? C(0) : a; };  // NaN and -0 are not < 0 and stay
  });
  return iter.output();
}

// The inputs are (self, gradient).
void threshold_backward(at::TensorIteratorBase& iter, const at::Scalar& threshold) {
  binary<Numeric>(iter, [&]<class C>() {
    return [threshold = threshold.to<C>()](C a, C gradient) { return a <= threshold ? C(0) : gradient; };
  });
}

}  // namespace opsmith::example_kernels
