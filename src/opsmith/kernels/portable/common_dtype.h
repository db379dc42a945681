// The dtype in which an operator calculates, by ATen's rule for result_type: operands with dimensions decide,
// unless those without have a dtype of a higher category (bool < integer < float). Python numbers reach a
// kernel as Tensors without dimensions, or as Scalars.
#pragma once

#include "../common/dtypes.h"

namespace opsmith::portable {

// PyTorch's default dtype is Float here: kernels see programs, in which it has been decided.
inline constexpr ScalarType kDefaultFloat = ScalarType::Float;

constexpr bool is_integral(ScalarType dtype) {  // Bool is none
  return executorch::runtime::isIntegralType(dtype, /*includeBool=*/false);
}

// The result's dtype of sin, div and mean: Float for integers and bools.
constexpr ScalarType float_dtype(ScalarType dtype) {
  return is_floating(dtype) ? dtype : kDefaultFloat;
}

// The three kinds of operand, in falling order of precedence.
struct Operands {
  ScalarType with_dims = ScalarType::Undefined;
  ScalarType without_dims = ScalarType::Undefined;
  ScalarType number = ScalarType::Undefined;

  void add(const Tensor& tensor);
  void add(const Scalar& scalar);
  ScalarType dtype() const;
};

// The same without precedence, as ExecuTorch has it for some operators: what all dtypes promote to.
ScalarType promoted_dtype(const Tensor& a, const Tensor& b);

template <class... Operand>
ScalarType common_dtype(const Operand&... operands) {
  Operands all;
  (all.add(operands), ...);
  return all.dtype();
}

// For operators that ATen does not calculate with bools, and ExecuTorch does: rejects a call with bools on a
// device.
inline bool takes_bools(KernelRuntimeContext& context, const char* operator_name, ScalarType dtype) {
  return dtype != ScalarType::Bool || in_executorch() || reject_dtype(context, operator_name, dtype);
}

// Whether a result of this dtype may be written to `out`; rejects the call where it may not.
bool can_store(KernelRuntimeContext& context, ScalarType result, const Tensor& out);

}  // namespace opsmith::portable
