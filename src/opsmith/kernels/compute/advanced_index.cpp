// Elements chosen by several indices at once, x[i, j]. The iterator has the result, the indexed tensor
// without the indexed dimensions' strides, and the indices, which PyTorch has broadcast.
#include <algorithm>
#include <string>

#include <ATen/TensorIterator.h>

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
constexpr int kMostIndexedDims = 12;
constexpr int kMostIndices = 8;

}  // namespace

void index(at::TensorIteratorBase& iter, at::DimVector sizes, at::DimVector strides) {
  if (iter.numel() == 0) {
    return;
  }
  const auto indices = static_cast<int>(sizes.size());
  const int rank = std::max(iter.ndim(), 1);
  TORCH_CHECK_NOT_IMPLEMENTED(rank <= kMostIndexedDims && indices <= kMostIndices, "indexing takes at most ",
                              kMostIndices, " indices and ", kMostIndexedDims, " dimensions on ",
                              iter.device(0));
  int64_t words[1 + 2 * kMostIndices + kMostIndexedDims * (3 + kMostIndices)];
  size_t used = 0;
  const auto add = [&](int64_t word) { words[used++] = word; };
  add(iter.numel());
  for (const int64_t size : sizes) {
    add(size);
  }
  for (const int64_t stride : strides) {
    add(stride);  // in bytes
  }
  for (int d = 0; d < rank; ++d) {
    add(iter.ndim() > 0 ? iter.shape()[static_cast<size_t>(d)] : 1);
  }
  for (int k = 0; k < 2 + indices; ++k) {
    for (int d = 0; d < rank; ++d) {
      add(iter.ndim() > 0 ? iter.strides(k)[static_cast<size_t>(d)] : 0);
    }
  }
  std::string definitions = "#define RANK " + std::to_string(rank) + "\n#define INDICES " +
                            std::to_string(indices) + "\n#define DTYPE " + c10::toString(iter.dtype(0)) +
                            "\n" + fault_definitions();
  std::string parameters;
  std::string lookups;
  for (int k = 0; k < indices; ++k) {
    const std::string name = "index" + std::to_string(k);
    parameters += ", BUFFER(const long, " + name + ")";
    lookups += " LOOK_UP(" + name + ", " + std::to_string(k) + ")";
  }
  definitions += "#define INDEX_PARAMETERS " + parameters + "\n#define LOOK_UPS " + lookups + "\n";
  Arguments arguments;
  arguments.bytes(words, used * sizeof(int64_t)).address(iter.data_ptr(0)).address(iter.data_ptr(1));
  arguments.address(faults());
  for (int k = 0; k < indices; ++k) {
    arguments.address(iter.data_ptr(2 + k));
  }
  launch("index a tensor", kernel(kAdvancedIndex, definitions, kCheckedIndices), arguments,
         linear(iter.numel()));
}

}  // namespace opsmith::compute
