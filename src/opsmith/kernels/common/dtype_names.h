// Dtypes as messages write them.
#pragma once

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

namespace opsmith {

// As PyTorch names it: Float.
inline const char* name_of(executorch::aten::ScalarType dtype) {
  return executorch::runtime::toString(dtype);
}

// As C++ writes the type of an element, which is what ATen's messages about overflow say.
inline const char* cpp_name_of(executorch::aten::ScalarType dtype) {
  using executorch::aten::ScalarType;
  switch (dtype) {
    case ScalarType::Byte:
      return "uint8_t";
    case ScalarType::Char:
      return "int8_t";
    case ScalarType::Short:
      return "int16_t";
    case ScalarType::Int:
      return "int";
    case ScalarType::Long:
      return "int64_t";
    case ScalarType::Half:
      return "c10::Half";
    case ScalarType::BFloat16:
      return "c10::BFloat16";
    case ScalarType::Float:
      return "float";
    default:
      return name_of(dtype);
  }
}

}  // namespace opsmith
