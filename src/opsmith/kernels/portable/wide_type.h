// The widest type of each kind, which holds every value of the kind's dtypes: for loops that need not exist
// once for each dtype, because their elements are converted on the way in.
#pragma once

#include "../common/dtypes.h"

namespace opsmith::portable {

namespace detail {

constexpr bool calculates_integers(const char* operator_name) {
  return calculates(operator_name, ScalarType::Byte) || calculates(operator_name, ScalarType::Char) ||
         calculates(operator_name, ScalarType::Short) || calculates(operator_name, ScalarType::Int) ||
         calculates(operator_name, ScalarType::Long) || calculates(operator_name, ScalarType::Bool);
}

}  // namespace detail

// f(Type<C>{}) for the type that holds elements of `dtype`: float for Float, Half and BFloat16, double, and
// int64_t for integers and Bool, whose sums wrap in the end as they would on the way.
template <const char* Name, class F>
bool with_wide_type(KernelRuntimeContext& context, ScalarType dtype, const F& f) {
  if constexpr (calculates(Name, ScalarType::Float)) {
    if (compute_dtype(dtype) == ScalarType::Float) {
      f(Type<float>{});
      return true;
    }
  }
  if constexpr (calculates(Name, ScalarType::Double)) {
    if (dtype == ScalarType::Double) {
      f(Type<double>{});
      return true;
    }
  }
  if constexpr (detail::calculates_integers(Name)) {
    if (contains(IntegralB{}, dtype)) {
      f(Type<int64_t>{});
      return true;
    }
  }
  return reject_dtype(context, Name, dtype);
}

}  // namespace opsmith::portable
