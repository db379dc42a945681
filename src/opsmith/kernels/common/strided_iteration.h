// Strided iteration over views of lean tensors, in threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dims.h"
#include "parallel.h"
#include "../../csrc/include/opsmith/strided_iterator.h"

namespace opsmith {

// Views of `sizes` with these strides, which are met in the order in which elements of view `order` lie in
// memory.
template <class... Strides>
StridedIterator<sizeof...(Strides)> strided(size_t order, const Dims& sizes, const Strides&... strides) {
  StridedIterator<sizeof...(Strides)> all;
  for (int64_t d = 0; d < sizes.rank; ++d) {
    all.add(sizes[d], {strides[d]...});
  }
  all.reorder(order);
  all.coalesce();
  return all;
}

// Tensors that broadcast to the first one, in the order in which its elements lie in memory.
template <class... Others>
StridedIterator<1 + sizeof...(Others)> strided_over(const Tensor& first, const Others&... others) {
  StridedIterator<1 + sizeof...(Others)> all;
  for (int64_t d = 0; d < first.dim(); ++d) {
    const auto i = static_cast<size_t>(d);
    all.add(first.sizes()[i], {first.strides()[i], broadcast_stride(others, d, first.dim())...});
  }
  all.reorder(0);
  all.coalesce();
  return all;
}

// f(offsets, index) of every position; in threads of at least `grain` positions.
template <size_t kOperands>
void for_each_in_threads(const StridedIterator<kOperands>& all, int64_t grain,
                         FunctionRef<void(const typename StridedIterator<kOperands>::Offsets&,
                                          const typename StridedIterator<kOperands>::Index&)>
                             f) {
  parallel(all.numel(), std::max<int64_t>(1, grain),
           [&](int64_t begin, int64_t end) { all.for_each(begin, end, f); });
}

// f(offsets, rows, n): rows of n elements along the innermost dimension, as many as the next one has evenly
// apart; in threads of at least `grain` elements.
template <size_t kOperands>
void for_each_row_in_threads(
    StridedIterator<kOperands> all, int64_t grain,
    FunctionRef<void(const typename StridedIterator<kOperands>::Offsets&, int64_t, int64_t)> f) {
  const auto row = all.pop();
  const int64_t rows = all.numel();
  if (rows == 1) {
    parallel(row.size, grain, [&](int64_t begin, int64_t end) {
      auto offsets = row.stride;
      for (int64_t& each : offsets) {
        each *= begin;
      }
      f(offsets, 1, end - begin);
    });
    return;
  }
  parallel(rows, std::max<int64_t>(1, grain / std::max<int64_t>(1, row.size)),
           [&](int64_t begin, int64_t end) {
             all.for_each_run(begin, end, rows,
                              [&](const auto& at, const auto&, int64_t n) { f(at, n, row.size); });
           });
}

// Where the place lies in a view, in elements.
inline int64_t offset_of(const Dims& at, const Dims& strides) {
  int64_t offset = 0;
  for (int64_t i = 0; i < at.rank; ++i) {
    offset += at[i] * strides[i];
  }
  return offset;
}

// f(at) with the coordinates of each place of `sizes`, in the order of the dimensions; in threads of at least
// `grain` places.
inline void for_each_place(const Dims& sizes, int64_t grain, FunctionRef<void(const Dims&)> f) {
  StridedIterator<0> places;
  for (int64_t d = 0; d < sizes.rank; ++d) {
    places.add(sizes[d], {});
  }
  parallel(places.numel(), std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    Dims at = sizes;
    places.for_each(begin, end, [&](const auto&, const auto& index) {
      std::copy_n(index.begin(), at.rank, at.value);
      f(at);
    });
  });
}

}  // namespace opsmith
