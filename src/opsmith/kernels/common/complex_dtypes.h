// The dtypes of complex numbers, and those of their parts.
#pragma once

#include "dtypes.h"

namespace opsmith {

// The dtype of the parts, or Undefined for one that is not complex.
constexpr ScalarType part_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::ComplexHalf:
      return ScalarType::Half;
    case ScalarType::ComplexFloat:
      return ScalarType::Float;
    case ScalarType::ComplexDouble:
      return ScalarType::Double;
    default:
      return ScalarType::Undefined;
  }
}

inline bool is_complex(const Tensor& t) {
  return part_of(t.scalar_type()) != ScalarType::Undefined;
}

}  // namespace opsmith
