// See numbers.h.
#include "numbers.h"

#include <ATen/ops/_local_scalar_dense.h>

namespace opsmith::compute {

const char* const kFunctions =
#include "functions.cl"
    ;

void add_number(Arguments& arguments, const at::Scalar& number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      arguments.value(number.toDouble());
      return;
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
      arguments.value(static_cast<float>(number.toDouble()));
      return;
    case at::kLong:
      arguments.value(number.toLong());
      return;
    case at::kInt:
      arguments.value(number.toInt());
      return;
    case at::kShort:
      arguments.value<int32_t>(number.toShort());
      return;
    case at::kChar:
      arguments.value<int32_t>(number.toChar());
      return;
    case at::kByte:
      arguments.value<int32_t>(number.toByte());
      return;
    default:
      arguments.value<int32_t>(number.toBool());
  }
}

at::Scalar checked(const at::Scalar& number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return number.toFloat();
    case at::kHalf:
      return static_cast<float>(number.toHalf());
    case at::kBFloat16:
      return static_cast<float>(number.toBFloat16());
    default:
      return number;
  }
}

at::Scalar stored(const at::Scalar& number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return static_cast<float>(number.toDouble());
    case at::kHalf:
      return static_cast<float>(at::Half(static_cast<float>(number.toDouble())));
    case at::kBFloat16:
      return static_cast<float>(at::BFloat16(static_cast<float>(number.toDouble())));
    case at::kInt:
      return static_cast<int32_t>(number.toLong());
    case at::kShort:
      return static_cast<int16_t>(number.toLong());
    case at::kChar:
      return static_cast<int8_t>(number.toLong());
    case at::kByte:
      return static_cast<uint8_t>(number.toLong());
    default:
      return number;
  }
}

at::Scalar host_scalar(const at::TensorBase& tensor) {
  return at::_local_scalar_dense(at::Tensor(tensor));
}

}  // namespace opsmith::compute
