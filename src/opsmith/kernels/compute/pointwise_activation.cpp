// Activations and their gradients. In most of these `a` is the gradient that comes, `b` the operand or the
// result; in those of leaky_relu and threshold PyTorch has the operand first.
#include "numbers.h"
#include "pointwise.h"

namespace opsmith::compute {

void gelu(at::TensorIteratorBase& iter, c10::string_view approximate) {
  pointwise(iter, approximate == "tanh" ? "(C)0.5 * a * (1 + tanh(gelu_inner(a)))" : "a * normal_below(a)");
}

void gelu_backward(at::TensorIteratorBase& iter, c10::string_view approximate) {
  pointwise(iter, approximate == "tanh" ? "a * gelu_tanh_slope(b)"
                                        : "a * (normal_below(b) + b * normal_density(b))");
}

void leaky_relu(at::TensorIteratorBase& iter, const at::Scalar& negative_slope) {
  pointwise(iter, "a > 0 ? a : a * x", {negative_slope});
}

void leaky_relu_backward(at::TensorIteratorBase& iter, const at::Scalar& negative_slope,
                         bool /*self_is_result*/) {
  pointwise(iter, "a > 0 ? b : b * x", {negative_slope});
}

void elu(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
         const at::Scalar& input_scale) {
  pointwise(iter, "a < 0 ? expm1(a * z) * (x * y) : a * y", {alpha, scale, input_scale});
}

void elu_backward(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
                  const at::Scalar& input_scale, bool is_result) {
  pointwise(
      iter,
      is_result ? "b <= 0 ? a * z * (b + x * y) : a * y" : "b <= 0 ? a * z * (x * y) * exp(b * z) : a * y",
      {alpha, scale, input_scale});
}

void softplus(at::TensorIteratorBase& iter, const at::Scalar& beta, const at::Scalar& threshold) {
  pointwise(iter, "a * x > y ? a : log1p(exp(a * x)) / x", {beta, threshold});
}

void softplus_backward(at::TensorIteratorBase& iter, const at::Scalar& beta, const at::Scalar& threshold) {
  pointwise(iter, "b * x > y ? a : a * sigmoid(b * x)", {beta, threshold});
}

OPSMITH_POINTWISE(hardsigmoid, "a < -3 ? (C)0 : a > 3 ? (C)1 : (a + 3) / 6")
OPSMITH_POINTWISE(hardsigmoid_backward, "b > -3 && b < 3 ? a / 6 : (C)0")
OPSMITH_POINTWISE(sigmoid_backward, "a * (1 - b) * b")
OPSMITH_POINTWISE(tanh_backward, "a * (1 - b * b)")
OPSMITH_POINTWISE(silu_backward, "a * silu_slope(b)")

void threshold(at::TensorIteratorBase& iter, const at::Scalar& threshold, const at::Scalar& value) {
  pointwise(iter, "a <= x ? y : a", {threshold, checked(value, iter.dtype())});
}

void threshold_backward(at::TensorIteratorBase& iter, const at::Scalar& threshold) {
  pointwise(iter, "a <= x ? (C)0 : b", {threshold});
}

}  // namespace opsmith::compute
