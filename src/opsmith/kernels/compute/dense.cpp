// See dense.h.
#include "dense.h"

namespace opsmith::compute {
namespace {

constexpr const char* kGroup =
#include "group.cl"
    ;

}  // namespace

opsmith_compute_kernel group_kernel(const char* source, const std::string& definitions, Grid& grid) {
  grid.items = {limits().is_cpu != 0 ? size_t{8} : size_t{128}, 1, 1};
  return kernel(source, "#define ITEMS_OF_GROUP " + std::to_string(grid.items[0]) + "\n" + definitions,
                kGroup);
}

}  // namespace opsmith::compute
