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
      arguments.value(number.isFloatingPoint() ? static_cast<int64_t>(number.toDouble()) : number.toLong());
      return;
    default:
      arguments.value(static_cast<int32_t>(number.isFloatingPoint() ? static_cast<int64_t>(number.toDouble())
                                                                    : number.toLong()));
  }
}

at::Scalar host_scalar(const at::TensorBase& tensor) {
  return at::_local_scalar_dense(at::Tensor(tensor));
}

}  // namespace opsmith::compute
