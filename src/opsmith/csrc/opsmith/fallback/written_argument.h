// Which arguments of a schema an operator writes to.
#pragma once

#include <ATen/core/function_schema.h>

namespace opsmith {

// Whether the operator writes to `argument`: `Tensor(a!)`.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace opsmith
