// The walks of axes.h.
#include "axes.h"

#include <algorithm>
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

void walk(const PairedAxes& axes, int64_t grain, FunctionRef<void(int64_t, int64_t, const int64_t*)> f) {
  int64_t steps = 1;
  for (int64_t i = 0; i < axes.count; ++i) {
    steps *= axes.axis[i].size;
  }
  parallel(steps, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    int64_t at[kMaxRank] = {};
    int64_t rest = begin;
    for (int64_t i = axes.count - 1; i >= 0; --i) {
      at[i] = rest % axes.axis[i].size;
      rest /= axes.axis[i].size;
    }
    for (int64_t step = begin; step < end; ++step) {
      int64_t from = 0;
      int64_t to = 0;
      for (int64_t i = 0; i < axes.count; ++i) {
        from += at[i] * axes.axis[i].from;
        to += at[i] * axes.axis[i].to;
      }
      f(from, to, at);
      for (int64_t i = axes.count - 1; i >= 0 && ++at[i] == axes.axis[i].size; --i) {
        at[i] = 0;
      }
    }
  });
}

void for_each_place(const Dims& sizes, int64_t grain, FunctionRef<void(const Dims&)> f) {
  parallel(sizes.product(), std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    Dims at = sizes;
    int64_t rest = begin;
    for (int64_t i = sizes.rank - 1; i >= 0; --i) {
      at[i] = rest % sizes[i];
      rest /= sizes[i];
    }
    for (int64_t place = begin; place < end; ++place) {
      f(static_cast<const Dims&>(at));
      for (int64_t i = sizes.rank - 1; i >= 0 && ++at[i] == sizes[i]; --i) {
        at[i] = 0;
      }
    }
  });
}

}  // namespace opsmith::portable
