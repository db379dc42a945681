// Arithmetic with two operands, bits and comparisons.
#include "pointwise.h"

#include <c10/util/Exception.h>

#include "numbers.h"

namespace opsmith::compute {

OPSMITH_POINTWISE(maximum, "a != a || a > b ? a : b")
OPSMITH_POINTWISE(minimum, "a != a || a < b ? a : b")
OPSMITH_POINTWISE(fmax, "b != b || a > b ? a : b")
OPSMITH_POINTWISE(fmin, "b != b || a < b ? a : b")
OPSMITH_POINTWISE(atan2, "atan2(a, b)")
OPSMITH_POINTWISE(copysign, "copysign(a, b)")
OPSMITH_POINTWISE(fmod, "fmod(a, b)")
OPSMITH_POINTWISE(remainder, "remainder_of(a, b)")
OPSMITH_POINTWISE(pow_tensor, "pow(a, b)")
OPSMITH_POINTWISE(bitwise_and, "a & b")
OPSMITH_POINTWISE(bitwise_or, "a | b")
OPSMITH_POINTWISE(bitwise_xor, "a ^ b")
OPSMITH_POINTWISE(eq, "a == b")
OPSMITH_POINTWISE(ne, "a != b")
OPSMITH_POINTWISE(lt, "a < b")
OPSMITH_POINTWISE(le, "a <= b")
OPSMITH_POINTWISE(gt, "a > b")
OPSMITH_POINTWISE(ge, "a >= b")
OPSMITH_POINTWISE(isposinf, "a == INFINITY")
OPSMITH_POINTWISE(isneginf, "a == -INFINITY")

// The number is an operand of the iterator too.
#define OPSMITH_WITH_NUMBER(name, expression)                            \
  void name(at::TensorIteratorBase& iter, const at::Scalar& /*other*/) { \
    pointwise(iter, expression);                                         \
  }

OPSMITH_WITH_NUMBER(eq_scalar, "a == b")
OPSMITH_WITH_NUMBER(ne_scalar, "a != b")
OPSMITH_WITH_NUMBER(lt_scalar, "a < b")
OPSMITH_WITH_NUMBER(le_scalar, "a <= b")
OPSMITH_WITH_NUMBER(gt_scalar, "a > b")
OPSMITH_WITH_NUMBER(ge_scalar, "a >= b")

#undef OPSMITH_WITH_NUMBER

void bitwise_not(at::TensorIteratorBase& iter) {
  pointwise(iter, iter.common_dtype() == at::kBool ? "!a" : "~a");
}

void mul(at::TensorIteratorBase& iter) {
  pointwise(iter, "a * b", {}, CpuOperands::kExact);
}

void div(at::TensorIteratorBase& iter) {
  pointwise(iter, "a / b", {}, CpuOperands::kExact);
}

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  if (alpha.equal(1)) {
    pointwise(iter, "a + b");
  } else {
    pointwise(iter, "a + x * b", {alpha});
  }
}

void sub(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  if (alpha.equal(1)) {
    pointwise(iter, "a - b");
  } else {
    pointwise(iter, "a - x * b", {alpha});
  }
}

void div_mode(at::TensorIteratorBase& iter, std::optional<c10::string_view> rounding_mode) {
  pointwise(iter,
            !rounding_mode.has_value()  ? "a / b"
            : *rounding_mode == "trunc" ? "trunc(a / b)"
                                        : "floor_divided(a, b)",
            {}, CpuOperands::kExact);
}

void pow_scalar(at::TensorIteratorBase& iter, const at::Scalar& exponent) {
  if (exponent.equal(2)) {
    pointwise(iter, "a * a");
  } else if (exponent.equal(3)) {
    pointwise(iter, "a * a * a");
  } else if (exponent.equal(0.5)) {
    pointwise(iter, "sqrt(a)");
  } else {
    const at::ScalarType dtype = iter.common_dtype();
    pointwise(iter, "pow(a, x)",
              {at::isReducedFloatingType(dtype) ? checked(exponent, dtype) : stored(exponent, dtype)});
  }
}

}  // namespace opsmith::compute
