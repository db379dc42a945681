// Limits, and what optimisers are made of.
#include "pointwise.h"

namespace opsmith::compute {

void clamp(at::TensorIteratorBase& iter, at::OptionalScalarRef min, at::OptionalScalarRef max) {
  if (min && max) {
    pointwise(iter, "(a < x ? x : a) > y ? y : a < x ? x : a", {min.get(), max.get()});
  } else if (min) {
    pointwise(iter, "a < x ? x : a", {min.get()});
  } else {
    pointwise(iter, "a > x ? x : a", {max.get()});
  }
}

void clamp_min(at::TensorIteratorBase& iter, const at::Scalar& min) {
  pointwise(iter, "a < x ? x : a", {min});
}

void clamp_max(at::TensorIteratorBase& iter, const at::Scalar& max) {
  pointwise(iter, "a > x ? x : a", {max});
}

void clamp_min_tensor(at::TensorIteratorBase& iter) {
  pointwise(iter, "a != a || a > b ? a : b");
}

void clamp_max_tensor(at::TensorIteratorBase& iter) {
  pointwise(iter, "a != a || a < b ? a : b");
}

void addcmul(at::TensorIteratorBase& iter, const at::Scalar& value) {
  pointwise(iter, "a + x * b * c", {value});
}

void addcdiv(at::TensorIteratorBase& iter, const at::Scalar& value) {
  pointwise(iter, "a + x * b / c", {value});
}

void lerp_scalar(at::TensorIteratorBase& iter, const at::Scalar& weight) {
  pointwise(iter, "interpolated(a, b, x)", {weight});
}

void lerp_tensor(at::TensorIteratorBase& iter) {
  pointwise(iter, "interpolated(a, b, c)");
}

}  // namespace opsmith::compute
