// The dtypes of complex numbers, and those of their parts.
#pragma once

#include "dtypes.h"

namespace opsmith {

// The dtype of the parts, or Undefined for one that is not complex.
constexpr ScalarType part_of(ScalarType dtype) {
  return executorch::runtime::isComplexType(dtype) ? executorch::runtime::toRealValueType(dtype)
                                                   : ScalarType::Undefined;
}

inline bool is_complex(const Tensor& t) {
  return executorch::runtime::isComplexType(t.scalar_type());
}

}  // namespace opsmith
