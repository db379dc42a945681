// A Scalar argument as a number.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace opsmith::optimized {

inline double number(const executorch::aten::Scalar& scalar) {
  if (scalar.isFloatingPoint()) {
    return scalar.to<double>();
  }
  return scalar.isBoolean() ? scalar.to<bool>() : static_cast<double>(scalar.to<int64_t>());
}

}  // namespace opsmith::optimized
