// Tensors made from numbers.
#include "meta_tensors.h"
#include "result_sizes.h"

#include <optional>

#include <c10/core/DefaultDtype.h>

namespace opsmith::meta_functions {

at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                  std::optional<at::Device> /*device*/, std::optional<bool> /*pin_memory*/) {
  const bool is_whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const at::ScalarType made = dtype.value_or(is_whole ? at::kLong : c10::get_default_dtype_as_scalartype());
  return contiguous({arange_length(start, end, step, made)}, made);
}

}  // namespace opsmith::meta_functions
