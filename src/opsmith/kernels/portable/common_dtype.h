// The dtype in which an operator calculates, by ATen's rule for result_type: operands with dimensions decide,
// unless those without have a dtype of a higher category (bool < integer < float). Python numbers reach a
// kernel as Tensors without dimensions, or as Scalars.
#pragma once

#include "dtypes.h"

namespace opsmith::portable {

// What PyTorch calls the default dtype is Float here: kernels see programs, in which it has been decided.
inline constexpr ScalarType kDefaultFloat = ScalarType::Float;

constexpr bool is_floating(ScalarType dtype) {
  return executorch::runtime::isFloatingType(dtype);
}
constexpr bool is_integral(ScalarType dtype) {  // Bool is none
  return executorch::runtime::isIntegralType(dtype, /*includeBool=*/false);
}

// What sin, div and mean give for integers and bools: Float.
constexpr ScalarType float_dtype(ScalarType dtype) {
  return is_floating(dtype) ? dtype : kDefaultFloat;
}

namespace detail {

inline constexpr ScalarType kNone = ScalarType::Undefined;

constexpr ScalarType promoted(ScalarType a, ScalarType b) {
  return a == kNone ? b : b == kNone ? a : executorch::runtime::promoteTypes(a, b);
}

constexpr int category_of(ScalarType dtype) {
  return dtype == kNone ? -1 : is_floating(dtype) ? 2 : is_integral(dtype) ? 1 : 0;
}

constexpr ScalarType higher(ScalarType a, ScalarType b) {
  return category_of(a) >= category_of(b) ? (a == kNone ? b : a) : promoted(a, b);
}

}  // namespace detail

// The three kinds of operand, in falling order of precedence.
struct Operands {
  ScalarType with_dims = detail::kNone;
  ScalarType without_dims = detail::kNone;
  ScalarType number = detail::kNone;

  constexpr ScalarType dtype() const {
    return detail::higher(with_dims, detail::higher(without_dims, number));
  }

  void add(const Tensor& tensor) {
    ScalarType& kind = tensor.dim() > 0 ? with_dims : without_dims;
    kind = detail::promoted(kind, tensor.scalar_type());
  }
  void add(const Scalar& scalar) {
    number = detail::promoted(number, scalar.isBoolean()         ? ScalarType::Bool
                                      : scalar.isFloatingPoint() ? kDefaultFloat
                                                                 : ScalarType::Long);
  }
};

template <class... Operand>
ScalarType common_dtype(const Operand&... operands) {
  Operands all;
  (all.add(operands), ...);
  return all.dtype();
}

// Whether a result of this dtype may be written to `out`; refuses the call where it may not.
inline bool can_store(KernelRuntimeContext& context, ScalarType result, const Tensor& out) {
  return executorch::runtime::canCast(result, out.scalar_type()) ||
         refuse(context, Error::InvalidArgument, "result type %s can't be cast to the desired output type %s",
                name_of(result), name_of(out.scalar_type()));
}

}  // namespace opsmith::portable
