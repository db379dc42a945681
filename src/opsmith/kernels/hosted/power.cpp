// Powers. The exponents that networks and optimisers use (0.5, 2, 3, -0.5, -1, -2) are products and roots, as
// in ATen, whose results they share bit for bit; integers wrap around.
#include <opsmith/pointwise.h>

#include <cmath>
#include <type_traits>

#include <ATen/core/Tensor.h>

namespace opsmith::hosted {
namespace {

template <class C>
C power(C base, C exponent) {
  if constexpr (std::is_integral_v<C>) {
    if (exponent < 0) {
      // 1 / base^|exponent|, rounded towards zero.
      return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    }
    using U = std::make_unsigned_t<C>;
    U result = 1;
    U factor = static_cast<U>(base);
    for (U e = static_cast<U>(exponent); e != 0; e >>= 1) {
      result *= (e & 1) != 0 ? factor : U(1);
      factor *= factor;
    }
    return static_cast<C>(result);
  } else {
    return std::pow(base, exponent);
  }
}

}  // namespace

void pow_tensor_scalar(at::TensorIteratorBase& iter, const at::Scalar& exponent) {
  const auto make = [&]<class F>(F f) {
    with_dtype(Floating{}, iter.dtype(1), [&]<class T>() { pointwise<T(T)>(iter, f); });
  };
  const bool floating = c10::isFloatingType(iter.dtype(1));
  const double e = exponent.toDouble();
  if (floating && e == 0.5) {
    make([](auto a) { return std::sqrt(a); });
  } else if (floating && e == -0.5) {
    make([](auto a) { return decltype(a)(1) / std::sqrt(a); });
  } else if (floating && e == 2) {
    make([](auto a) { return a * a; });
  } else if (floating && e == 3) {
    make([](auto a) { return a * a * a; });
  } else if (floating && e == -1) {
    make([](auto a) { return decltype(a)(1) / a; });
  } else if (floating && e == -2) {
    make([](auto a) { return decltype(a)(1) / (a * a); });
  } else {
    unary<Numeric>(
        iter, [&]<class C>() { return [exponent = exponent.to<C>()](C a) { return power(a, exponent); }; });
  }
}

void pow_tensor_tensor(at::TensorIteratorBase& iter) {
  binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return power(a, b); }; });
}

}  // namespace opsmith::hosted
