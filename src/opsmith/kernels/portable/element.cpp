// A number as an element: the conversion that fill_, full and every operator with a value share.
#include "movement.h"
#include "scalar_tensor.h"

#include <cmath>

namespace opsmith::portable {
namespace {

// Whether `value` is in the range of the dtype, to which infinities and NaN belong where it is floating
// point.
bool fits(ScalarType dtype, double value) {
  const auto within = [value](double least, double most) { return value >= least && value <= most; };
  const auto floating = [value](double most) { return !std::isfinite(value) || std::fabs(value) <= most; };
  switch (dtype) {
    case ScalarType::Float:
      return floating(3.4028234663852886e38);
    case ScalarType::BFloat16:
      return floating(3.3895313892515355e38);
    case ScalarType::Half:
      return floating(65504.0);
    case ScalarType::Long:
      return within(-9223372036854775808.0, 9223372036854775808.0);
    case ScalarType::Int:
      return within(-2147483648.0, 2147483647.0);
    case ScalarType::Short:
      return within(-32768.0, 32767.0);
    case ScalarType::Char:
      return within(-128.0, 127.0);
    case ScalarType::Byte:
      return within(-255.0, 255.0);  // negative numbers wrap
    default:
      return true;
  }
}

// Not by conversion.h: a build for programs without Double and Long has numbers all the same.
template <class... T>
bool store_number(Types<T...>, const Scalar& value, ScalarType dtype, Bytes16& element) {
  return ((dtype == dtype_of<T> &&
           (store_element(reinterpret_cast<T*>(&element), value_of<compute_t<T>>(value)), true)) ||
          ...);
}

}  // namespace

bool element_of(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype, Bytes16& element) {
  const double number = value_of<double>(value);
  // ExecuTorch takes integers below 0 to Byte modulo 256, and no other numbers.
  const bool is_below_byte =
      in_executorch() && dtype == ScalarType::Byte && value.isFloatingPoint() && number < 0;
  OPSMITH_CHECK(context, fits(dtype, number) && !is_past_long(value, dtype) && !is_below_byte,
                InvalidArgument, false, "value cannot be converted to type %s without overflow",
                cpp_name_of(dtype));
  OPSMITH_CHECK(context, store_number(RealB{}, value, dtype, element), NotSupported, false,
                "a number cannot be made an element of %s", name_of(dtype));
  return true;
}

}  // namespace opsmith::portable
