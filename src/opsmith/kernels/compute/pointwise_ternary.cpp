// Limits, and what optimisers are made of.
#include "numbers.h"
#include "pointwise.h"

#include <algorithm>
#include <limits>

#include <ATen/Dispatch.h>

#include <opsmith/torch_version.h>

namespace opsmith::compute {

namespace {

enum class Side : bool { kLower, kUpper };

// `limit` among the numbers of the common dtype, if ATen brings an integer there; else it is refused.
at::Scalar held(const at::TensorIteratorBase& iter, Side side, const at::Scalar& limit) {
  const at::ScalarType dtype = iter.common_dtype();
  if (!OPSMITH_LIMITS_SATURATE || !c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return checked(limit, dtype);
  }
  return AT_DISPATCH_INTEGRAL_TYPES(dtype, "clamp", [&]() -> at::Scalar {
    using Limits = std::numeric_limits<scalar_t>;
    const int64_t lowest = Limits::lowest(), highest = Limits::max(), value = limit.toLong();
    TORCH_CHECK(side == Side::kLower ? value <= highest : value >= lowest, "Clamp ",
                side == Side::kLower ? "min" : "max", " value ", value,
                " is outside the representable range of ", dtype);
    return std::clamp(value, lowest, highest);
  });
}

}  // namespace

void clamp_min(at::TensorIteratorBase& iter, const at::Scalar& min) {
  pointwise(iter, "x != x || a < x ? x : a", {held(iter, Side::kLower, min)});
}

void clamp_max(at::TensorIteratorBase& iter, const at::Scalar& max) {
  pointwise(iter, "x != x || a > x ? x : a", {held(iter, Side::kUpper, max)});
}

void clamp(at::TensorIteratorBase& iter, at::OptionalScalarRef min, at::OptionalScalarRef max) {
  if (min && max) {
    const at::Scalar lower = held(iter, Side::kLower, min.get());
    pointwise(iter, "clamped(a, x, y)", {lower, held(iter, Side::kUpper, max.get())});
  } else if (min) {
    clamp_min(iter, min.get());
  } else {
    clamp_max(iter, max.get());
  }
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
