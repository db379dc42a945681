// See dense.h.
#include "dense.h"

#include <c10/core/WrapDimMinimal.h>

namespace opsmith::compute {
namespace {

constexpr const char* kGroup =
#include "group.cl"
    ;

}  // namespace

Lines lines_of(const at::Tensor& tensor, int64_t dim) {
  const int64_t along = c10::maybe_wrap_dim(dim, tensor.dim());
  Lines lines;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    (d < along ? lines.outer : d == along ? lines.length : lines.inner) *= tensor.size(d);
  }
  return lines;
}

opsmith_compute_kernel group_kernel(const char* source, const std::string& definitions, Grid& grid) {
  grid.items = {limits().is_cpu != 0 ? size_t{8} : size_t{128}, 1, 1};
  return kernel(source, definition("ITEMS_OF_GROUP", grid.items[0]) + definitions, kGroup);
}

}  // namespace opsmith::compute
