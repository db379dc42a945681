// The order of a walk.
#include "axes.h"

#include <utility>

namespace opsmith::portable {

PairedAxes::PairedAxes(const Dims& sizes, const Dims& from, const Dims& to) {
  PairedAxis all[kMaxRank];
  int64_t n = 0;
  for (int64_t i = 0; i < sizes.rank; ++i) {
    if (sizes[i] != 1) {
      all[n++] = {sizes[i], from[i], to[i]};
    }
  }
  // By insertion: there are few axes, mostly in order, and std::stable_sort allocates.
  for (int64_t i = 1; i < n; ++i) {
    for (int64_t j = i; j > 0 && all[j - 1].to < all[j].to; --j) {
      std::swap(all[j - 1], all[j]);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    PairedAxis* const last = count == 0 ? nullptr : &axis[count - 1];
    if (last != nullptr && last->from == all[i].from * all[i].size && last->to == all[i].to * all[i].size) {
      *last = {last->size * all[i].size, all[i].from, all[i].to};
    } else {
      axis[count++] = all[i];
    }
  }
}

}  // namespace opsmith::portable
