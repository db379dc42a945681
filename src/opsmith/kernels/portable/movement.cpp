// The loop of movement.h.
#include "movement.h"

#include <algorithm>
#include <utility>

namespace opsmith::portable {
namespace {

using Dimension = StridedIterator<2>::Dimension;

constexpr int64_t kBytes = 1 << 17;  // bytes below which a second thread does not pay

template <class U>
void copy_line(int64_t n, const char* from, int64_t from_stride, char* to, int64_t to_stride) {
  const U* const source = reinterpret_cast<const U*>(from);
  U* const destination = reinterpret_cast<U*>(to);
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(destination, source, static_cast<size_t>(n) * sizeof(U));
    return;
  }
  if (to_stride == 1 && from_stride == 0) {
    std::fill_n(destination, n, *source);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    destination[i * to_stride] = source[i * from_stride];
  }
}

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

// A matrix whose rows are dense in one of the views and columns in the other: in squares that stay in the
// cache.
template <class U>
void copy_transposed(const Dimension& rows, const Dimension& columns, const char* from, char* to) {
  constexpr int64_t kSide = 32;
  const U* const source = reinterpret_cast<const U*>(from);
  U* const destination = reinterpret_cast<U*>(to);
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

using MoveTransposed = void (*)(const Dimension& rows, const Dimension& columns, const char* from, char* to);

MoveTransposed transposed_mover(int64_t width) {
  MoveTransposed mover = nullptr;
  with_width(width, [&](auto element) { mover = copy_transposed<decltype(element)>; });
  return mover;
}

}  // namespace

MoveLine line_mover(int64_t width) {
  MoveLine mover = nullptr;
  with_width(width, [&](auto element) { mover = copy_line<decltype(element)>; });
  return mover;
}

void copy_strided(const Dims& sizes, int64_t width, const Source& from, const Destination& to) {
  // In place nothing moves.
  if (sizes.product() == 0 || (from.data == to.data && from.strides == to.strides)) {
    return;
  }
  const MoveLine copy_line = line_mover(width);
  auto all = strided(1, sizes, from.strides, to.strides);
  const Dimension line = all.innermost();
  const Dimension matrix = all.innermost(1);
  if (line.stride[1] == 1 && line.stride[0] != 1 && matrix.stride[0] == 1 && line.size > 4 &&
      matrix.size > 4) {
    constexpr int64_t kBand = 64;  // rows of a transposition that are one step of the iteration
    const MoveTransposed transposed = transposed_mover(width);
    all.pop();
    Dimension& bands = all[all.rank() - 1];
    bands = {ceil_divided(matrix.size, kBand), {matrix.stride[0] * kBand, matrix.stride[1] * kBand}};
    for_each_in_threads<2>(all, kBytes / (line.size * width * kBand), [&](const auto& at, const auto& index) {
      const int64_t height = std::min(kBand, matrix.size - index[all.rank() - 1] * kBand);
      transposed({height, matrix.stride}, line, from.data + at[0] * width, to.data + at[1] * width);
    });
    return;
  }
  for_each_row_in_threads<2>(all, kBytes / width, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      copy_line(n, from.data + (at[0] + row * matrix.stride[0]) * width, line.stride[0],
                to.data + (at[1] + row * matrix.stride[1]) * width, line.stride[1]);
    }
  });
}

bool convert_strided(KernelRuntimeContext& context, const Dims& sizes, ScalarType from_dtype,
                     const Source& from, ScalarType to_dtype, const Destination& to) {
  const int64_t from_width = static_cast<int64_t>(executorch::runtime::elementSize(from_dtype));
  const int64_t to_width = static_cast<int64_t>(executorch::runtime::elementSize(to_dtype));
  if (from_dtype == to_dtype) {
    copy_strided(sizes, to_width, from, to);
    return true;
  }
  const Convert convert = conversion(from_dtype, to_dtype);
  OPSMITH_CHECK(context, convert != nullptr, NotSupported, false,
                "no conversion from %s to %s is part of this build", name_of(from_dtype), name_of(to_dtype));
  if (sizes.product() == 0) {
    return true;
  }
  const auto convert_line = [&](int64_t n, const char* p, int64_t p_stride, char* q, int64_t q_stride) {
    if (q_stride == 1) {
      convert(p, {1, n, 0, p_stride}, q);
      return;
    }
    alignas(16) char block[kTile * sizeof(int64_t)];
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t count = std::min(kTile, n - i);
      convert(p + i * p_stride * from_width, {1, count, 0, p_stride}, block);
      spread(static_cast<size_t>(to_width), block, q + i * q_stride * to_width, q_stride, count);
    }
  };
  const auto all = strided(1, sizes, from.strides, to.strides);
  const Dimension line = all.innermost();
  const Dimension next = all.innermost(1);
  for_each_row_in_threads<2>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      convert_line(n, from.data + (at[0] + row * next.stride[0]) * from_width, line.stride[0],
                   to.data + (at[1] + row * next.stride[1]) * to_width, line.stride[1]);
    }
  });
  return true;
}

}  // namespace opsmith::portable
