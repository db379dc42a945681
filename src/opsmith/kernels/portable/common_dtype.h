// The dtype in which an operator calculates, by ATen's rule for result_type: operands with dimensions decide,
// unless those without have a dtype of a higher category (bool < integer < float). Python numbers reach a
// kernel as Tensors without dimensions, or as Scalars.
#pragma once

#include "../common/dtypes.h"

namespace opsmith::portable {

// What integers and numbers become that are calculated as floats: PyTorch's default dtype, which the result
// tells where a program has set it to Double. ExecuTorch's programs have Float for it.
inline ScalarType default_dtype(const Tensor& out) {
  return !in_executorch() && out.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

constexpr bool is_integral(ScalarType dtype) {  // Bool is none
  return executorch::runtime::isIntegralType(dtype, /*includeBool=*/false);
}

// The dtype in which sin and div calculate a result from operands of this one.
inline ScalarType float_dtype(ScalarType dtype, const Tensor& out) {
  return is_floating(dtype) ? dtype : default_dtype(out);
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

// The same of a Tensor and a number: a float among integers is of the default dtype.
inline ScalarType common_dtype_for(const Tensor& out, const Tensor& self, const Scalar& number) {
  const ScalarType dtype = common_dtype(self, number);
  return is_floating(self.scalar_type()) ? dtype : is_floating(dtype) ? default_dtype(out) : dtype;
}

// For operators that ATen does not calculate with bools, and ExecuTorch does: rejects a call with bools on a
// device.
inline bool takes_bools(KernelRuntimeContext& context, const char* operator_name, ScalarType dtype) {
  return dtype != ScalarType::Bool || in_executorch() || reject_dtype(context, operator_name, dtype);
}

// Whether a result of this dtype may be written to `out`; rejects the call where it may not.
bool can_store(KernelRuntimeContext& context, ScalarType result, const Tensor& out);

}  // namespace opsmith::portable
