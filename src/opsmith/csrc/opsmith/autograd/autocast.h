// torch.autocast on the device: PyTorch's own lists for a device, with the changes of the description.
#pragma once

#include <initializer_list>

#include <c10/core/ScalarType.h>

namespace opsmith {

enum class Precision {
  kLower,          // in the dtype of the autocast
  kFloat32,        // in float32
  kFloat32Result,  // the operator is told the dtype of its result: float32, unless it is given
  kWidest,         // in the widest dtype of the arguments
  kUnchanged,      // as it is called
};

struct AutocastRule {
  const char* name;  // with namespace and overload
  Precision precision;
};

// Registers autocast: `rules` in the place of what PyTorch's lists say of these operators. `dtypes` are those
// that it may cast to, the default first. Called once, by generated code.
void set_autocast(std::initializer_list<c10::ScalarType> dtypes, std::initializer_list<AutocastRule> rules);

}  // namespace opsmith
