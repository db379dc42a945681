// The most dimensions that a Tensor may have.
#pragma once

#include <cstddef>

namespace executorch::runtime {

constexpr size_t kTensorDimensionLimit = 16;

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::kTensorDimensionLimit;
}  // namespace torch::executor
