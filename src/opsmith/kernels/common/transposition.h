// Copies between views whose innermost dimensions differ, as those of contiguous and of channels-last images
// do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "strided_iteration.h"

namespace opsmith {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define OPSMITH_HAS_SHUFFLE
#endif
#endif

#ifdef OPSMITH_HAS_SHUFFLE
// As many elements as 16 bytes hold.
template <class U>
struct Lanes {
  static constexpr int64_t kCount = 16 / static_cast<int64_t>(sizeof(U));
  typedef U Vector __attribute__((vector_size(16)));
  typedef U Unaligned __attribute__((vector_size(16), aligned(1), may_alias));

  // The lower halves of both, or the upper ones, in turns.
  template <int kFirst, int... kLane>
  static Vector alternating(Vector a, Vector b, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, (kFirst + kLane / 2 + kLane % 2 * kCount)...);
  }
};

// A square of kCount × kCount elements: rows that are merged in turns with those half the square below, log2
// of its side times over, are its columns.
template <class U>
void transpose_square(const U* from, int64_t from_stride, U* to, int64_t to_stride) {
  using Of = Lanes<U>;
  using Each = std::make_integer_sequence<int, static_cast<int>(Of::kCount)>;
  constexpr int64_t kCount = Of::kCount;
  typename Of::Vector rows[kCount], merged[kCount];
  for (int64_t i = 0; i < kCount; ++i) {
    rows[i] = *reinterpret_cast<const typename Of::Unaligned*>(from + i * from_stride);
  }
  for (int64_t side = 1; side < kCount; side *= 2) {
    for (int64_t i = 0; i < kCount / 2; ++i) {
      merged[2 * i] = Of::template alternating<0>(rows[i], rows[i + kCount / 2], Each{});
      merged[2 * i + 1] =
          Of::template alternating<static_cast<int>(kCount / 2)>(rows[i], rows[i + kCount / 2], Each{});
    }
    std::copy_n(merged, kCount, rows);
  }
  for (int64_t i = 0; i < kCount; ++i) {
    *reinterpret_cast<typename Of::Unaligned*>(to + i * to_stride) = rows[i];
  }
}
#endif

// A matrix whose rows are dense in the destination and columns in the source: in squares that stay in the
// cache.
template <class U>
void copy_matrix(const StridedIterator<2>::Dimension& rows, const StridedIterator<2>::Dimension& columns,
                 const U* source, U* destination) {
  constexpr int64_t kSide = 32;
  const auto copy = [&](int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column) {
    for (int64_t r = first_row; r < last_row; ++r) {
      for (int64_t c = first_column; c < last_column; ++c) {
        destination[r * rows.stride[1] + c] = source[r + c * columns.stride[0]];
      }
    }
  };
  for (int64_t i = 0; i < rows.size; i += kSide) {
    for (int64_t j = 0; j < columns.size; j += kSide) {
      int64_t row = i, column = j;
      const int64_t last_row = std::min(i + kSide, rows.size);
      const int64_t last_column = std::min(j + kSide, columns.size);
#ifdef OPSMITH_HAS_SHUFFLE
      if constexpr (sizeof(U) < 16) {
        constexpr int64_t kCount = Lanes<U>::kCount;
        for (; row + kCount <= last_row; row += kCount) {
          for (column = j; column + kCount <= last_column; column += kCount) {
            transpose_square(source + row + column * columns.stride[0], columns.stride[0],
                             destination + row * rows.stride[1] + column, rows.stride[1]);
          }
          copy(row, row + kCount, column, last_column);
        }
      }
#endif
      copy(row, last_row, j, last_column);
    }
  }
}

// Copies all elements of `all`, whose operands are the source and the destination, in the order in which the
// destination's lie in memory. False, with nothing copied, where there is no such matrix in it.
template <class U>
bool copy_transposed(StridedIterator<2> all, const U* from, U* to) {
  constexpr int64_t kBytes = 1 << 17;  // below which a second thread does not pay
  constexpr int64_t kBand = 64;        // rows of a matrix that are one step of the iteration
  const auto line = all.innermost(), matrix = all.innermost(1);
  if (line.stride[1] != 1 || line.stride[0] == 1 || matrix.stride[0] != 1 || line.size <= 4 ||
      matrix.size <= 4) {
    return false;
  }
  all.pop();
  auto& bands = all[all.rank() - 1];
  bands = {ceil_divided(matrix.size, kBand), {matrix.stride[0] * kBand, matrix.stride[1] * kBand}};
  const int64_t grain = kBytes / (line.size * static_cast<int64_t>(sizeof(U)) * kBand);
  for_each_in_threads<2>(all, grain, [&](const auto& at, const auto& index) {
    const int64_t height = std::min(kBand, matrix.size - index[all.rank() - 1] * kBand);
    copy_matrix<U>({height, matrix.stride}, line, from + at[0], to + at[1]);
  });
  return true;
}

}  // namespace opsmith
