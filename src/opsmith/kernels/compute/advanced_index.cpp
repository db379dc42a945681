// Elements chosen by several indices at once, x[i, j]. The iterator has the result, the indexed tensor
// without the indexed dimensions' strides, and the indices, which PyTorch has broadcast.
#include <algorithm>
#include <string>

#include <ATen/TensorIterator.h>

#include "definitions.h"
#include "faults.h"
#include "launch.h"

namespace opsmith::compute {
namespace {

constexpr const char* kAdvancedIndex =
#include "advanced_index.cl"
    ;
constexpr const char* kCheckedIndices =
#include "checked_index.cl"
    ;

}  // namespace

void index(at::TensorIteratorBase& iter, at::DimVector sizes, at::DimVector strides) {
  if (iter.numel() == 0) {
    return;
  }
  const auto indices = static_cast<int>(sizes.size());
  const auto rank = static_cast<size_t>(iter.ndim());
  Words layout;
  layout.add(iter.numel());
  layout.add_each(sizes.size(), [&](size_t k) { return sizes[k]; }, 0);
  layout.add_each(strides.size(), [&](size_t k) { return strides[k]; }, 0);  // in bytes
  layout.add_each(rank, [&](size_t d) { return iter.shape()[d]; }, 1);
  for (int k = 0; k < 2 + indices; ++k) {
    layout.add_each(rank, [&](size_t d) { return iter.strides(k)[d]; }, 0);
  }
  std::string parameters;
  std::string lookups;
  for (int k = 0; k < indices; ++k) {
    const std::string name = "index" + std::to_string(k);
    parameters += ", BUFFER(const long, " + name + ")";
    lookups += " LOOK_UP(" + name + ", " + std::to_string(k) + ")";
  }
  const std::string definitions = definition("RANK", std::max<size_t>(rank, 1)) +
                                  definition("INDICES", indices) + definition("DTYPE", iter.dtype(0)) +
                                  definition("INDEX_PARAMETERS", parameters) +
                                  definition("LOOK_UPS", lookups) + fault_definitions();
  Arguments arguments;
  arguments.words(layout).address(iter.data_ptr(0)).address(iter.data_ptr(1));
  arguments.address(faults());
  for (int k = 0; k < indices; ++k) {
    arguments.address(iter.data_ptr(2 + k));
  }
  launch("index a tensor", kernel(kAdvancedIndex, definitions, kCheckedIndices), arguments,
         linear(iter.numel()));
}

}  // namespace opsmith::compute
