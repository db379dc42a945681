// Functions of one operand.
#include "../complex_numbers.h"
#include "../elementary_functions.h"
#include "../pointwise_bodies.h"

#include <cmath>

namespace opsmith::portable::native {

// Functions whose results are floats: integers and bools are calculated as Float.
#define OPSMITH_FLOAT_FUNCTION(name, expression)                                                           \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {                     \
    static constexpr char kName[] = #name ".out";                                                          \
    return unary<kName>(context, Floating{}, float_dtype(self.scalar_type(), out), self, out, [](auto a) { \
      using C = decltype(a);                                                                               \
      return static_cast<C>(expression);                                                                   \
    });                                                                                                    \
  }

OPSMITH_FLOAT_FUNCTION(acos, std::acos(a))
OPSMITH_FLOAT_FUNCTION(acosh, std::acosh(a))
OPSMITH_FLOAT_FUNCTION(asin, std::asin(a))
OPSMITH_FLOAT_FUNCTION(asinh, std::asinh(a))
OPSMITH_FLOAT_FUNCTION(atan, std::atan(a))
OPSMITH_FLOAT_FUNCTION(atanh, std::atanh(a))
OPSMITH_FLOAT_FUNCTION(cos, std::cos(a))
OPSMITH_FLOAT_FUNCTION(cosh, std::cosh(a))
OPSMITH_FLOAT_FUNCTION(erf, portable::erf(a))
OPSMITH_FLOAT_FUNCTION(erfc, std::erfc(a))
OPSMITH_FLOAT_FUNCTION(exp, portable::exp(a))
OPSMITH_FLOAT_FUNCTION(exp2, std::exp2(a))
OPSMITH_FLOAT_FUNCTION(expm1, std::expm1(a))
OPSMITH_FLOAT_FUNCTION(log, std::log(a))
OPSMITH_FLOAT_FUNCTION(log10, std::log10(a))
OPSMITH_FLOAT_FUNCTION(log1p, std::log1p(a))
OPSMITH_FLOAT_FUNCTION(log2, std::log2(a))
OPSMITH_FLOAT_FUNCTION(reciprocal, C(1) / a)
OPSMITH_FLOAT_FUNCTION(rsqrt, C(1) / std::sqrt(a))
OPSMITH_FLOAT_FUNCTION(sigmoid, portable::sigmoid(a))
OPSMITH_FLOAT_FUNCTION(sin, std::sin(a))
OPSMITH_FLOAT_FUNCTION(sinh, std::sinh(a))
OPSMITH_FLOAT_FUNCTION(sqrt, std::sqrt(a))
OPSMITH_FLOAT_FUNCTION(tan, std::tan(a))
OPSMITH_FLOAT_FUNCTION(tanh, portable::tanh(a))
#undef OPSMITH_FLOAT_FUNCTION

// Functions whose results have the operand's dtype.
#define OPSMITH_REAL_FUNCTION(name, dtypes, of_float, of_integer)                      \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) { \
    static constexpr char kName[] = #name ".out";                                      \
    if (!out_is(context, self.scalar_type(), out)) {                                   \
      return out;                                                                      \
    }                                                                                  \
    return unary<kName>(context, dtypes{}, self.scalar_type(), self, out, [](auto a) { \
      using C = decltype(a);                                                           \
      if constexpr (std::is_floating_point_v<C>) {                                     \
        return static_cast<C>(of_float);                                               \
      } else {                                                                         \
        return static_cast<C>(of_integer);                                             \
      }                                                                                \
    });                                                                                \
  }

namespace {

template <class C>
C sign_of(C a) {
  return static_cast<C>((C(0) < a) - (a < C(0)));
}

// Without the overflow of the least integer: it is its own negative.
template <class C>
C negative(C a) {
  return static_cast<C>(std::make_unsigned_t<C>(0) - static_cast<std::make_unsigned_t<C>>(a));
}

}  // namespace

OPSMITH_REAL_FUNCTION(ceil, Real, std::ceil(a), a)
OPSMITH_REAL_FUNCTION(floor, Real, std::floor(a), a)
OPSMITH_REAL_FUNCTION(neg, Real, -a, negative(a))
OPSMITH_REAL_FUNCTION(round, Real, std::nearbyint(a), a)
OPSMITH_REAL_FUNCTION(trunc, Real, std::trunc(a), a)
#undef OPSMITH_REAL_FUNCTION

namespace {

constexpr char kAnyOperator[] = "";  // a build for any program with floats has results of them

// The magnitudes of complex numbers, as any floats.
template <const char* Name>
Tensor& magnitudes(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  if (!can_store(context, part_of(self.scalar_type()), out) || !resize_like(context, out, self) ||
      !one_dim_order(context, {&out, &self})) {
    return out;
  }
  with_parts<Name>(context, self.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Complex<T>* const from = static_cast<const Complex<T>*>(self.const_data_ptr());
    with_dtype<kAnyOperator>(context, Floating{}, out.scalar_type(), [&](auto result) {
      using R = typename decltype(result)::type;
      R* const to = out.mutable_data_ptr<R>();
      const auto all = strided_over(out, self);
      parallel(all.numel(), kGrain, [&](int64_t begin, int64_t end) {
        all.for_each(begin, end, [&](const auto& at, const auto&) {
          const auto a = load_complex(from + at[1]);
          store_element(to + at[0], std::hypot(a.re, a.im));
        });
      });
    });
  });
  return out;
}

}  // namespace

Tensor& abs_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "abs.out";
  if (is_complex(self)) {
    return magnitudes<kName>(context, self, out);
  }
  if (!out_is(context, self.scalar_type(), out)) {
    return out;
  }
  return unary<kName>(context, Real{}, self.scalar_type(), self, out, [](auto a) {
    if constexpr (std::is_floating_point_v<decltype(a)>) {
      return std::fabs(a);
    } else {
      return a < 0 ? negative(a) : a;
    }
  });
}

// Of NaN 0, as ATen has it, or NaN, as ExecuTorch does.
Tensor& sign_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "sign.out";
  if (!out_is(context, self.scalar_type(), out)) {
    return out;
  }
  return unary<kName>(context, RealB{}, self.scalar_type(), self, out,
                      [keeps_nan = in_executorch()](auto a) { return keeps_nan && a != a ? a : sign_of(a); });
}

// To so many digits behind the point, or zeros before it.
Tensor& round_decimals_out(KernelRuntimeContext& context, const Tensor& self, int64_t decimals, Tensor& out) {
  static constexpr char kName[] = "round.decimals_out";
  return unary_of<kName>(context, Floating{}, self.scalar_type(), self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    const C power = static_cast<C>(std::pow(10.0, static_cast<double>(std::abs(decimals))));
    return [power, before = decimals < 0](C a) {
      return before ? std::nearbyint(a / power) * power : std::nearbyint(a * power) / power;
    };
  });
}

namespace {

// Truth values of floats; integers and bools are never infinite nor NaN.
template <const char* Name, class F>
Tensor& float_predicate(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const F& f) {
  if (out_is(context, ScalarType::Bool, out) && resize_like(context, out, self) &&
      one_dim_order(context, {&out, &self})) {
    with_compute_dtype<Name>(context, Floating{}, float_dtype(self.scalar_type(), out), [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<bool(C)>(context, out, [f](C a) { return f(a); }, self);
    });
  }
  return out;
}

}  // namespace

Tensor& isinf_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "isinf.out";
  return float_predicate<kName>(context, self, out, [](auto a) { return std::isinf(a); });
}

Tensor& isnan_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "isnan.out";
  return float_predicate<kName>(context, self, out, [](auto a) { return a != a; });
}

}  // namespace opsmith::portable::native
