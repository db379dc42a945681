// The loop of movement.h.
#include "movement.h"

#include <algorithm>

#include "../common/short_copy.h"
#include "../common/transposition.h"

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

// Rows of `bytes` without gaps, such as the heads of attention. Pitches are in bytes.
void copy_dense_rows(int64_t rows, int64_t bytes, const char* from, int64_t from_pitch, char* to,
                     int64_t to_pitch) {
  for (int64_t row = 0; row < rows; ++row) {
    copy_short(to + row * to_pitch, from + row * from_pitch, bytes);
  }
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
  const auto all = strided(1, sizes, from.strides, to.strides);
  bool is_done = false;
  with_width(width, [&](auto element) {
    using U = decltype(element);
    is_done = copy_transposed(all, reinterpret_cast<const U*>(from.data), reinterpret_cast<U*>(to.data));
  });
  if (is_done) {
    return;
  }
  const Dimension line = all.innermost();
  const Dimension matrix = all.innermost(1);
  // Of many short rows the first elements are copied, then the second ones, ...
  constexpr int64_t kShort = 8, kTogether = 512;
  for_each_row_in_threads<2>(all, kBytes / width, [&](const auto& at, int64_t rows, int64_t n) {
    const char* const source = from.data + at[0] * width;
    char* const destination = to.data + at[1] * width;
    if (n < kShort && rows > n) {
      for (int64_t row = 0; row < rows; row += kTogether) {
        for (int64_t i = 0; i < n; ++i) {
          copy_line(std::min(kTogether, rows - row),
                    source + (row * matrix.stride[0] + i * line.stride[0]) * width, matrix.stride[0],
                    destination + (row * matrix.stride[1] + i * line.stride[1]) * width, matrix.stride[1]);
        }
      }
      return;
    }
    if (line.stride == StridedIterator<2>::Offsets{1, 1}) {
      copy_dense_rows(rows, n * width, source, matrix.stride[0] * width, destination,
                      matrix.stride[1] * width);
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      copy_line(n, source + row * matrix.stride[0] * width, line.stride[0],
                destination + row * matrix.stride[1] * width, line.stride[1]);
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
