// A number as an element: the conversion that fill_, full and every operator with a value share.
#include "movement.h"

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

// The types as ATen's message names them.
const char* cpp_name(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return "float";
    case ScalarType::BFloat16:
      return "c10::BFloat16";
    case ScalarType::Half:
      return "c10::Half";
    case ScalarType::Long:
      return "int64_t";
    case ScalarType::Int:
      return "int";
    case ScalarType::Short:
      return "int16_t";
    case ScalarType::Char:
      return "int8_t";
    case ScalarType::Byte:
      return "uint8_t";
    default:
      return name_of(dtype);
  }
}

// A number is a double, an integer or a bool, also in a build that has no such Tensors: not by the table of
// conversions, which is cut down to the dtypes of those.
template <class... T>
bool store(Types<T...>, ScalarType dtype, const Scalar& value, void* element) {
  return ((dtype == dtype_of<T> && (store_element(static_cast<T*>(element), value_of<T>(value)), true)) ||
          ...);
}

}  // namespace

bool element_of(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype, Bytes16& element) {
  const bool floating = value.isFloatingPoint();
  const int64_t integer = floating ? 0 : value_of<int64_t>(value);
  const double number = floating ? value.to<double>() : static_cast<double>(integer);
  OPSMITH_CHECK(context, fits(dtype, number), InvalidArgument, false,
                "value cannot be converted to type %s without overflow", cpp_name(dtype));
  OPSMITH_CHECK(context, store(RealB{}, dtype, value, &element), NotSupported, false,
                "a number as %s is not part of this build", name_of(dtype));
  return true;
}

}  // namespace opsmith::portable
