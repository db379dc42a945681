// The loop of movement.h.
#include "movement.h"

#include <algorithm>

#include "axes.h"

namespace opsmith::portable {
namespace {

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

// A matrix whose rows are dense in one of the views and columns in the other: in squares that stay in the
// cache.
template <class U>
void copy_transposed(const PairedAxis& rows, const PairedAxis& columns, const char* from, char* to) {
  constexpr int64_t kSide = 32;
  const U* const source = reinterpret_cast<const U*>(from);
  U* const destination = reinterpret_cast<U*>(to);
  for (int64_t i = 0; i < rows.size; i += kSide) {
    for (int64_t j = 0; j < columns.size; j += kSide) {
      const int64_t last_row = std::min(i + kSide, rows.size);
      const int64_t last_column = std::min(j + kSide, columns.size);
      for (int64_t r = i; r < last_row; ++r) {
        for (int64_t c = j; c < last_column; ++c) {
          destination[r * rows.to + c * columns.to] = source[r * rows.from + c * columns.from];
        }
      }
    }
  }
}

using MoveTransposed = void (*)(const PairedAxis& rows, const PairedAxis& columns, const char* from,
                                char* to);

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
  PairedAxes axes(sizes, from.strides, to.strides);
  const PairedAxis line = axes.pop();
  if (axes.count == 0) {
    parallel(line.size, kBytes / width, [&](int64_t begin, int64_t end) {
      copy_line(end - begin, from.data + begin * line.from * width, line.from,
                to.data + begin * line.to * width, line.to);
    });
    return;
  }
  PairedAxis& rows = axes.axis[axes.count - 1];
  if (line.to == 1 && line.from != 1 && rows.from == 1 && line.size > 4 && rows.size > 4) {
    constexpr int64_t kBand = 64;  // rows of a transposition that are one step of the walk
    const MoveTransposed transposed = transposed_mover(width);
    const PairedAxis matrix = rows;
    rows = {(matrix.size + kBand - 1) / kBand, matrix.from * kBand, matrix.to * kBand};
    walk(axes, kBytes / (line.size * width * kBand),
         [&](int64_t source, int64_t destination, const int64_t* at) {
           const int64_t height = std::min(kBand, matrix.size - at[axes.count - 1] * kBand);
           transposed({height, matrix.from, matrix.to}, line, from.data + source * width,
                      to.data + destination * width);
         });
    return;
  }
  walk(axes, kBytes / (line.size * width), [&](int64_t source, int64_t destination, const int64_t*) {
    copy_line(line.size, from.data + source * width, line.from, to.data + destination * width, line.to);
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
  PairedAxes axes(sizes, from.strides, to.strides);
  const PairedAxis line = axes.pop();
  if (axes.count == 0) {
    parallel(line.size, kGrain, [&](int64_t begin, int64_t end) {
      convert_line(end - begin, from.data + begin * line.from * from_width, line.from,
                   to.data + begin * line.to * to_width, line.to);
    });
    return true;
  }
  walk(axes, kGrain / line.size, [&](int64_t p, int64_t q, const int64_t*) {
    convert_line(line.size, from.data + p * from_width, line.from, to.data + q * to_width, line.to);
  });
  return true;
}

}  // namespace opsmith::portable
