// Functions of one number: signs, rounding, roots, exponentials, logarithms and the trigonometric family, as
// a table with one line each.
#include <opsmith/elementary.h>
#include <opsmith/pointwise.h>

#include <cmath>
#include <type_traits>

#include <ATen/core/Tensor.h>

namespace opsmith::hosted {

#define OPSMITH_UNARY(NAME, DTYPES, RESULT)                                         \
  void NAME(at::TensorIteratorBase& iter) {                                         \
    unary<DTYPES>(iter, []<class C>() { return [](C a) -> C { return RESULT; }; }); \
  }

OPSMITH_UNARY(neg, Numeric, -a)
OPSMITH_UNARY(sign, Numeric, static_cast<C>((C(0) < a) - (a < C(0))))
OPSMITH_UNARY(reciprocal, Floating, C(1) / a)
OPSMITH_UNARY(sqrt, Floating, std::sqrt(a))
OPSMITH_UNARY(rsqrt, Floating, C(1) / std::sqrt(a))

OPSMITH_UNARY(exp, Floating, opsmith::exp(a))
OPSMITH_UNARY(exp2, Floating, std::exp2(a))
OPSMITH_UNARY(expm1, Floating, std::expm1(a))
OPSMITH_UNARY(log, Floating, std::log(a))
OPSMITH_UNARY(log1p, Floating, std::log1p(a))
OPSMITH_UNARY(log2, Floating, std::log2(a))
OPSMITH_UNARY(log10, Floating, std::log10(a))
OPSMITH_UNARY(sin, Floating, std::sin(a))
OPSMITH_UNARY(cos, Floating, std::cos(a))
OPSMITH_UNARY(tan, Floating, std::tan(a))
OPSMITH_UNARY(atan, Floating, std::atan(a))
OPSMITH_UNARY(tanh, Floating, opsmith::tanh(a))
OPSMITH_UNARY(erf, Floating, std::erf(a))
OPSMITH_UNARY(erfc, Floating, std::erfc(a))

// Integers are whole already: ATen's meta lets them through, and the result is the operand.
#define OPSMITH_ROUNDING(NAME, RESULT)         \
  void NAME(at::TensorIteratorBase& iter) {    \
    unary<Numeric>(iter, []<class C>() {       \
      return [](C a) -> C {                    \
        if constexpr (std::is_integral_v<C>) { \
          return a;                            \
        } else {                               \
          return RESULT;                       \
        }                                      \
      };                                       \
    });                                        \
  }

OPSMITH_ROUNDING(floor, std::floor(a))
OPSMITH_ROUNDING(ceil, std::ceil(a))
OPSMITH_ROUNDING(trunc, std::trunc(a))
OPSMITH_ROUNDING(round, std::nearbyint(a))

namespace {

// ATen has no structured abs: the iterator checks, resizes or allocates the output.
at::Tensor abs_into(const at::Tensor& self, at::Tensor& out) {
  auto iter = at::TensorIterator::unary_op(out, self);
  unary<Numeric>(iter, []<class C>() {
    return [](C a) -> C {
      if constexpr (std::is_integral_v<C>) {
        return a < 0 ? -a : a;
      } else {
        return std::fabs(a);
      }
    };
  });
  return iter.output();
}

}  // namespace

at::Tensor abs(const at::Tensor& self) {
  at::Tensor allocated;
  return abs_into(self, allocated);
}

at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  abs_into(self, out);
  return out;
}

}  // namespace opsmith::hosted
