// Functions of one operand. Structured kernels: PyTorch's meta functions check, promote and shape.
#include "pointwise.h"

namespace opsmith::compute {
namespace {

void rounded(at::TensorIteratorBase& iter, const char* expression) {
  pointwise(iter, at::isIntegralType(iter.common_dtype(), /*includeBool=*/true) ? "a" : expression);
}

}  // namespace

#define OPSMITH_UNARY(name, expression)     \
  void name(at::TensorIteratorBase& iter) { \
    pointwise(iter, expression);            \
  }

OPSMITH_UNARY(exp, "exp(a)")
OPSMITH_UNARY(exp2, "exp2(a)")
OPSMITH_UNARY(expm1, "expm1(a)")
OPSMITH_UNARY(log, "log(a)")
OPSMITH_UNARY(log2, "log2(a)")
OPSMITH_UNARY(log10, "log10(a)")
OPSMITH_UNARY(log1p, "log1p(a)")
OPSMITH_UNARY(sqrt, "sqrt(a)")
OPSMITH_UNARY(rsqrt, "1 / sqrt(a)")
OPSMITH_UNARY(reciprocal, "1 / a")
OPSMITH_UNARY(sin, "sin(a)")
OPSMITH_UNARY(cos, "cos(a)")
OPSMITH_UNARY(tan, "tan(a)")
OPSMITH_UNARY(asin, "asin(a)")
OPSMITH_UNARY(acos, "acos(a)")
OPSMITH_UNARY(atan, "atan(a)")
OPSMITH_UNARY(sinh, "sinh(a)")
OPSMITH_UNARY(cosh, "cosh(a)")
OPSMITH_UNARY(tanh, "tanh(a)")
OPSMITH_UNARY(asinh, "asinh(a)")
OPSMITH_UNARY(acosh, "acosh(a)")
OPSMITH_UNARY(atanh, "atanh(a)")
OPSMITH_UNARY(erf, "erf(a)")
OPSMITH_UNARY(erfc, "erfc(a)")
OPSMITH_UNARY(sigmoid, "sigmoid(a)")
OPSMITH_UNARY(silu, "a * sigmoid(a)")
OPSMITH_UNARY(mish, "a * tanh(log1p(exp(a)))")
OPSMITH_UNARY(frac, "a - trunc(a)")
OPSMITH_UNARY(neg, "-a")
OPSMITH_UNARY(sign, "(a > 0) - (a < 0)")
OPSMITH_UNARY(sgn, "(a > 0) - (a < 0)")

#undef OPSMITH_UNARY

void floor(at::TensorIteratorBase& iter) {
  rounded(iter, "floor(a)");
}
void ceil(at::TensorIteratorBase& iter) {
  rounded(iter, "ceil(a)");
}
void round(at::TensorIteratorBase& iter) {
  rounded(iter, "rint(a)");
}
void trunc(at::TensorIteratorBase& iter) {
  rounded(iter, "trunc(a)");
}

}  // namespace opsmith::compute
