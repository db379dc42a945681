// Functions of one operand. Structured kernels: PyTorch's meta functions check, promote and shape.
#include "pointwise.h"

namespace opsmith::compute {
namespace {

void rounded(at::TensorIteratorBase& iter, const char* expression) {
  pointwise(iter, at::isIntegralType(iter.common_dtype(), /*includeBool=*/true) ? "a" : expression);
}

}  // namespace

OPSMITH_POINTWISE(exp, "exp(a)")
OPSMITH_POINTWISE(exp2, "exp2(a)")
OPSMITH_POINTWISE(expm1, "expm1(a)")
OPSMITH_POINTWISE(log, "log(a)")
OPSMITH_POINTWISE(log2, "log2(a)")
OPSMITH_POINTWISE(log10, "log10(a)")
OPSMITH_POINTWISE(log1p, "log1p(a)")
OPSMITH_POINTWISE(sqrt, "sqrt(a)")
OPSMITH_POINTWISE(rsqrt, "1 / sqrt(a)")
OPSMITH_POINTWISE(reciprocal, "1 / a")
OPSMITH_POINTWISE(sin, "sin(a)")
OPSMITH_POINTWISE(cos, "cos(a)")
OPSMITH_POINTWISE(tan, "tan(a)")
OPSMITH_POINTWISE(asin, "asin(a)")
OPSMITH_POINTWISE(acos, "acos(a)")
OPSMITH_POINTWISE(atan, "atan(a)")
OPSMITH_POINTWISE(sinh, "sinh(a)")
OPSMITH_POINTWISE(cosh, "cosh(a)")
OPSMITH_POINTWISE(tanh, "tanh(a)")
OPSMITH_POINTWISE(asinh, "asinh(a)")
OPSMITH_POINTWISE(acosh, "acosh(a)")
OPSMITH_POINTWISE(atanh, "atanh(a)")
OPSMITH_POINTWISE(erf, "erf(a)")
OPSMITH_POINTWISE(erfc, "erfc(a)")
OPSMITH_POINTWISE(sigmoid, "sigmoid(a)")
OPSMITH_POINTWISE(silu, "a * sigmoid(a)")
OPSMITH_POINTWISE(mish, "a * tanh(log1p(exp(a)))")
OPSMITH_POINTWISE(frac, "a - trunc(a)")
OPSMITH_POINTWISE(neg, "-a")
OPSMITH_POINTWISE(sign, "(a > 0) - (a < 0)")
OPSMITH_POINTWISE(sgn, "(a > 0) - (a < 0)")

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
