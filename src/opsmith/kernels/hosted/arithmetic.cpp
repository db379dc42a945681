// The four operations, remainders, and what optimisers are made of: addcmul, addcdiv, lerp. ATen's meta has
// promoted and shaped the operands; each kernel here only says what to calculate.
#include <opsmith/pointwise.h>

#include <cmath>
#include <optional>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <c10/util/generic_math.h>

namespace opsmith::hosted {

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  binary<Real>(iter, [&]<class C>() {
    return [alpha = alpha.to<C>()](C a, C b) { return static_cast<C>(a + alpha * b); };
  });
}

void sub(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  binary<Real>(iter, [&]<class C>() {
    return [alpha = alpha.to<C>()](C a, C b) { return static_cast<C>(a - alpha * b); };
  });
}

void mul(at::TensorIteratorBase& iter) {
  binary<Real>(iter, []<class C>() { return [](C a, C b) { return static_cast<C>(a * b); }; });
}

void div(at::TensorIteratorBase& iter) {
  binary<Floating>(iter, []<class C>() { return [](C a, C b) { return a / b; }; });
}

namespace {

template <class C>
C quotient_floor(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    TORCH_CHECK(b != 0, "ZeroDivisionError");
    return c10::div_floor_integer(a, b);
  } else {
    return c10::div_floor_floating(a, b);
  }
}

template <class C>
C quotient_trunc(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    TORCH_CHECK(b != 0, "ZeroDivisionError");
    // The least integer over -1 does not fit and would trap.
    return b == -1 ? static_cast<C>(0 - static_cast<std::make_unsigned_t<C>>(a)) : a / b;
  } else {
    return std::trunc(a / b);
  }
}

// Of the dividend's sign, as C's %.
template <class C>
C remainder_trunc(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    TORCH_CHECK(b != 0, "ZeroDivisionError");
    return b == -1 ? C(0) : a % b;
  } else {
    return std::fmod(a, b);
  }
}

// Of the divisor's sign, as Python's %.
template <class C>
C remainder_floor(C a, C b) {
  const C r = remainder_trunc(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace

void div_mode(at::TensorIteratorBase& iter, std::optional<c10::string_view> rounding_mode) {
  if (!rounding_mode) {
    div(iter);
  } else if (*rounding_mode == "floor") {
    binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return quotient_floor(a, b); }; });
  } else {
    binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return quotient_trunc(a, b); }; });
  }
}

void fmod(at::TensorIteratorBase& iter) {
  binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return remainder_trunc(a, b); }; });
}

void remainder(at::TensorIteratorBase& iter) {
  binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return remainder_floor(a, b); }; });
}

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

}  // namespace opsmith::hosted
