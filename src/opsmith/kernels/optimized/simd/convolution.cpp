// The parts of convolutions beside matrix products: blocks with a border of zeros, the patches in them, and
// sums over the kernel of a single channel.
#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

OPSMITH_INLINE void put_zeros(float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(to + i, zero());
  }
  if (i < n) {
    store_some(to + i, zero(), n - i);
  }
}

OPSMITH_INLINE int64_t lane(int64_t i) {
  return i < 0 ? 0 : least(i, kLanes);
}

// `read` gives a vector of a feature map's row: lanes between the bounds, of elements from an index on. Whole
// vectors are stored, since what comes after a row is written later.
template <class Read>
OPSMITH_INLINE void copy_row(float* to, int64_t width, int64_t before, int64_t after, Read read) {
  int64_t i = 0;
  for (; i < width && i < before; i += kLanes) {
    store(to + i, read(i - before, lane(before - i), lane(after - i)));
  }
  for (; i + kLanes <= after; i += kLanes) {
    store(to + i, read(i - before, 0, kLanes));
  }
  for (; i < width; i += kLanes) {
    store(to + i, read(i - before, 0, lane(after - i)));
  }
}

// `element` reads one.
template <class T, class Read, class Element>
OPSMITH_INLINE void copy_plane(const RowCopy<T>& c, int64_t from, float* to, Read read, Element element) {
  const int64_t before = c.before, after = c.before + c.count, width = c.width, to_row = c.to_row;
  for (int64_t row = 0; row < c.row_begin; ++row, to += to_row) {
    put_zeros(to, width);
  }
  int64_t rows = c.row_end - c.row_begin;
  if (c.step == 1 && width <= kLanes) {
    const int64_t begin_lane = lane(before), end_lane = lane(after);
    const int64_t first = from - before, from_row = c.from_row;
    for (int64_t row = 0; row < rows; ++row) {
      store(to + row * to_row, read(first + row * from_row, begin_lane, end_lane));
    }
    to += rows * to_row;
    rows = 0;
  }
  for (int64_t row = 0; row < rows; ++row, to += to_row, from += c.from_row) {
    if (c.step == 1) {
      copy_row(to, width, before, after, [&](int64_t at, int64_t begin, int64_t end) OPSMITH_ALWAYS_INLINE {
        return read(from + at, begin, end);
      });
      continue;
    }
    // Behind the row there may be one of another phase: it ends exactly.
    put_zeros(to, c.before);
    int64_t i = 0;
    if (c.step == 2) {
      for (; i < c.count; i += kLanes) {
        const int64_t n = least(kLanes, c.count - i), last = 2 * n - 1;
        const F low = read(from + 2 * i, 0, lane(last));
        const F high = last > kLanes ? read(from + 2 * i + kLanes, 0, last - kLanes) : zero();
        if (n == kLanes) {
          store(to + c.before + i, evens(low, high));
        } else {
          store_some(to + c.before + i, evens(low, high), n);
        }
      }
    }
    for (; i < c.count; ++i) {
      const uint32_t bits = element(from + i * c.step);
      __builtin_memcpy(to + c.before + i, &bits, sizeof bits);
    }
    put_zeros(to + after, width - after);
  }
  for (int64_t row = c.row_end; row < c.rows; ++row, to += to_row) {
    put_zeros(to, width);
  }
}

template <class T, class Read, class Element>
OPSMITH_INLINE void copy(const RowCopy<T>& c, Read read, Element element) {
  for (int64_t plane = 0; plane < c.planes; ++plane) {
    copy_plane(c, plane * c.from_plane, c.to + plane * c.to_plane, read, element);
  }
}

OPSMITH_INLINE uint32_t bits_of(const float* x) {
  uint32_t bits;
  __builtin_memcpy(&bits, x, sizeof bits);
  return bits;
}

template <class T>
OPSMITH_INLINE F between(const T* p, int64_t begin, int64_t end) {
  if (begin >= end) {
    return zero();
  }
  return begin == 0 && end == kLanes ? load(p) : load_between(p, begin, end);
}

}  // namespace

void copy_rows_float(const RowCopy<float>& c) {
  copy(
      c,
      [&](int64_t i, int64_t begin, int64_t end)
          OPSMITH_ALWAYS_INLINE { return between(c.from + i, begin, end); },
      [&](int64_t i) OPSMITH_ALWAYS_INLINE { return bits_of(c.from + i); });
}

void copy_float(const float* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(to + i, load(from + i));
  }
  if (i < n) {
    store_some(to + i, load_some(from + i, n - i), n - i);
  }
}

// Widened to float32.
void copy_rows_bfloat16(const RowCopy<Bfloat16>& c) {
  copy(
      c,
      [&](int64_t i, int64_t begin, int64_t end)
          OPSMITH_ALWAYS_INLINE { return between(c.from + i, begin, end); },
      [&](int64_t i) OPSMITH_ALWAYS_INLINE { return static_cast<uint32_t>(c.from[i].bits) << 16; });
}

// Pairs of two channels.
void copy_pairs(const RowCopy<Bfloat16>& c) {
  const Bfloat16* const second = c.second;
  copy(
      c,
      [&](int64_t i, int64_t begin, int64_t end) OPSMITH_ALWAYS_INLINE {
        return interleaved(between(c.from + i, begin, end),
                           second == nullptr ? zero() : between(second + i, begin, end));
      },
      [&](int64_t i) OPSMITH_ALWAYS_INLINE {
        return c.from[i].bits | (second == nullptr ? 0u : static_cast<uint32_t>(second[i].bits) << 16);
      });
}

namespace {

// A row's vectors end in the next row, which is written after it; exactly, where a block has no slack.
template <bool kExact, class T>
OPSMITH_INLINE void gather_runs(const float* block, const int64_t* offsets, int64_t count, const Run* runs,
                                int64_t run_count, T* to, int64_t pitch) {
  for (int64_t k = 0; k < count; ++k) {
    const float* const from = block + offsets[k];
    T* const row = to + k * pitch;
    for (int64_t r = 0; r < run_count; ++r) {
      const Run run = runs[r];
      for (int64_t i = 0; i < run.count; i += kLanes) {
        const float* const p = from + run.from + i;
        store_exact(row + run.at + i, kExact ? between(p, 0, least(kLanes, run.count - i)) : load(p));
      }
    }
  }
}

// The runs of a vector come together in it.
template <int N, class T>
OPSMITH_INLINE void gather_vector(const float* block, const int64_t* offsets, int64_t count, const Run* runs,
                                  T* to, int64_t pitch) {
  int64_t begin[N], end[N];
  const float* from[N];
#pragma GCC unroll 4
  for (int r = 0; r < N; ++r) {
    begin[r] = runs[r].at;
    end[r] = runs[r].at + runs[r].count;
    from[r] = block + (runs[r].from - runs[r].at);
  }
  if constexpr (N == 2) {
    // Rows of half a vector.
    if (begin[0] == 0 && end[0] == kLanes / 2 && begin[1] == kLanes / 2 && end[1] == kLanes) {
      for (int64_t k = 0; k < count; ++k) {
        const float* const p = block + offsets[k];
        store_exact(to + k * pitch, load_halves(p + runs[0].from, p + runs[1].from));
      }
      return;
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const int64_t offset = offsets[k];
    F x = load_between(from[0] + offset, begin[0], end[0]);
#pragma GCC unroll 4
    for (int r = 1; r < N; ++r) {
      x = load_onto(x, from[r] + offset, begin[r], end[r]);
    }
    store_exact(to + k * pitch, x);
  }
}

template <class T>
OPSMITH_INLINE void gather_all(const float* block, const int64_t* offsets, int64_t count, const Run* runs,
                               int64_t run_count, T* to, int64_t pitch, bool exactly) {
  if constexpr (kLanes == kPanel) {
    switch (run_count) {
      case 1:
        return gather_vector<1>(block, offsets, count, runs, to, pitch);
      case 2:
        return gather_vector<2>(block, offsets, count, runs, to, pitch);
      case 3:
        return gather_vector<3>(block, offsets, count, runs, to, pitch);
      case 4:
        return gather_vector<4>(block, offsets, count, runs, to, pitch);
      default:
        break;
    }
  }
  if (exactly) {
    gather_runs<true>(block, offsets, count, runs, run_count, to, pitch);
  } else {
    gather_runs<false>(block, offsets, count, runs, run_count, to, pitch);
  }
}

}  // namespace

void gather(const float* block, const int64_t* offsets, int64_t count, const Run* runs, int64_t run_count,
            float* to, int64_t pitch, bool exactly) {
  gather_all(block, offsets, count, runs, run_count, to, pitch, exactly);
}
void gather_bfloat16(const float* block, const int64_t* offsets, int64_t count, const Run* runs,
                     int64_t run_count, Bfloat16* to, int64_t pitch) {
  gather_all(block, offsets, count, runs, run_count, to, pitch, false);
}

// ---- a single channel

namespace {

// N vectors, `step` apart in the block and `result_step` in the result.
template <int N, class T>
OPSMITH_INLINE void add_depthwise(const Depthwise<T>& t, const float* block, int64_t step, T* result,
                                  int64_t result_step, int64_t lanes) {
  F sums[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    sums[i] = splat(t.bias);
  }
  if (lanes == kLanes) {
    for (int64_t k = 0; k < t.kernel_size; ++k) {
      const F weight = splat(t.weights[k]);
      const float* const at = block + t.offsets[k];
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        sums[i] = fma(load(at + i * step), weight, sums[i]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      store(result + i * result_step, sums[i]);
    }
    return;
  }
  for (int64_t k = 0; k < t.kernel_size; ++k) {
    const F weight = splat(t.weights[k]);
    const float* const at = block + t.offsets[k];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      sums[i] = fma(load_some(at + i * step, lanes), weight, sums[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    store_some(result + i * result_step, sums[i], lanes);
  }
}

template <class T>
OPSMITH_INLINE void all_depthwise(const Depthwise<T>& t) {
  int64_t row = 0;
  for (; row + 4 <= t.rows; row += 4) {
    for (int64_t x = 0; x < t.columns; x += kLanes) {
      add_depthwise<4>(t, t.block + row * t.block_row + x, t.block_row, t.result + row * t.result_row + x,
                       t.result_row, least(kLanes, t.columns - x));
    }
  }
  for (; row < t.rows; ++row) {
    const float* const block = t.block + row * t.block_row;
    T* const result = t.result + row * t.result_row;
    int64_t x = 0;
    for (; x + 4 * kLanes <= t.columns; x += 4 * kLanes) {
      add_depthwise<4>(t, block + x, kLanes, result + x, kLanes, kLanes);
    }
    for (; x < t.columns; x += kLanes) {
      add_depthwise<1>(t, block + x, 0, result + x, 0, least(kLanes, t.columns - x));
    }
  }
}

// So many sums stay in registers.
constexpr int kOffsets = 9;

}  // namespace

void depthwise_float(const Depthwise<float>& sums) {
  all_depthwise(sums);
}
void depthwise_bfloat16(const Depthwise<Bfloat16>& sums) {
  all_depthwise(sums);
}

void depthwise_gradient(const DepthwiseGradient& t) {
  for (int64_t first = 0; first < t.kernel_size; first += kOffsets) {
    const int64_t count = least(kOffsets, t.kernel_size - first);
    int64_t offsets[kOffsets];
    F sums[kOffsets];
#pragma GCC unroll 9
    for (int i = 0; i < kOffsets; ++i) {
      offsets[i] = t.offsets[first + (i < count ? i : 0)];
      sums[i] = zero();
    }
    for (int64_t row = 0; row < t.rows; ++row) {
      const float* const block = t.block + row * t.block_row;
      const float* const grad = t.grad + row * t.grad_row;
      int64_t x = 0;
      for (; x + kLanes <= t.columns; x += kLanes) {
        const F factor = load(grad + x);
#pragma GCC unroll 9
        for (int i = 0; i < kOffsets; ++i) {
          sums[i] = fma(factor, load(block + offsets[i] + x), sums[i]);
        }
      }
      if (x < t.columns) {
        const int64_t lanes = t.columns - x;
        const F factor = load_some(grad + x, lanes);
#pragma GCC unroll 9
        for (int i = 0; i < kOffsets; ++i) {
          sums[i] = fma(factor, load_some(block + offsets[i] + x, lanes), sums[i]);
        }
      }
    }
#pragma GCC unroll 9
    for (int i = 0; i < kOffsets; ++i) {
      if (i < count) {
        t.sums[first + i] += static_cast<double>(sum(sums[i]));
      }
    }
  }
}

}  // namespace opsmith::optimized::OPSMITH_ISA
