// Whether a dtype of this library can hold a number.
#pragma once

#include <c10/util/overflows.h>

#include "by_dtype.h"

namespace opsmith::optimized {

// As ATen checks where it does not promote; rejects the call where not.
inline bool fits(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype) {
  const auto overflows = [&](auto number) {
    using N = decltype(number);
    return dtype == ScalarType::Float  ? c10::overflows<float, N>(number)
           : dtype == ScalarType::Half ? c10::overflows<executorch::aten::Half, N>(number)
                                       : c10::overflows<executorch::aten::BFloat16, N>(number);
  };
  const bool is_held = value.isBoolean() || !(value.isFloatingPoint() ? overflows(value.to<double>())
                                                                      : overflows(value.to<int64_t>()));
  return is_held || reject(context, Error::InvalidArgument,
                           "value cannot be converted to type %s without overflow", cpp_name_of(dtype));
}

}  // namespace opsmith::optimized
