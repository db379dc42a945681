#include "scalar_tensor.h"

#include <c10/util/overflows.h>

namespace opsmith::portable {
namespace {

template <class... T>
void store(Types<T...>, ScalarType dtype, const Scalar& value, void* to) {
  ((dtype == dtype_of<T> && (store_element(static_cast<T*>(to), value_of<T>(value)), true)) || ...);
}

template <class T>
Scalar scalar_at(const void* place) {
  const auto value = load_element(static_cast<const T*>(place));
  if constexpr (std::is_same_v<T, bool>) {
    return Scalar(value);
  } else if constexpr (std::is_integral_v<T>) {
    return Scalar(static_cast<int64_t>(value));
  } else {
    return Scalar(static_cast<double>(value));
  }
}

template <class... T>
Scalar element(Types<T...>, const Tensor& tensor) {
  Scalar found;
  ((tensor.scalar_type() == dtype_of<T> && ((found = scalar_at<T>(tensor.const_data_ptr())), true)) || ...);
  return found;
}

template <class T>
bool overflows(const Scalar& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return false;
  } else {
    return value.isBoolean()         ? false
           : value.isFloatingPoint() ? c10::overflows<T, double>(value.to<double>())
                                     : c10::overflows<T, int64_t>(value.to<int64_t>());
  }
}

template <class... T>
bool overflows(Types<T...>, ScalarType dtype, const Scalar& value) {
  return ((dtype == dtype_of<T> && overflows<T>(value)) || ...);
}

}  // namespace

Scalar element_of(const Tensor& tensor) {
  return element(RealB{}, tensor);
}

bool is_past_long(const Scalar& value, ScalarType dtype) {
  return in_executorch() && dtype == ScalarType::Long && value.isFloatingPoint() &&
         value.to<double>() == 9223372036854775808.0;
}

bool overflows(const Scalar& value, ScalarType dtype) {
  return is_past_long(value, dtype) || overflows(RealB{}, dtype, value);
}

bool fits(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype) {
  return !overflows(value, dtype) ||
         reject(context, Error::InvalidArgument, "value cannot be converted to type %s without overflow",
                cpp_name_of(dtype));
}

bool holds(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype) {
  OPSMITH_CHECK(context, !in_executorch() || dtype != ScalarType::Byte || !(value_of<double>(value) < 0),
                InvalidArgument, false, "value cannot be converted to type %s without overflow",
                cpp_name_of(dtype));
  return fits(context, value, dtype);
}

ScalarTensor::ScalarTensor(const Scalar& value, ScalarType dtype)
    : impl_(dtype, 0, sizes_, value_, dim_order_, strides_), tensor_(&impl_) {
  store(RealB{}, dtype, value, value_);
}

}  // namespace opsmith::portable
