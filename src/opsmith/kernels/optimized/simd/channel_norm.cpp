// The elementwise part of group and batch norm, and of their gradients: with one number for a run of elements
// of a channel, or one for each column of rows whose columns are channels.
#include "map.h"
#include "statistics_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

template <class T>
OPSMITH_INLINE void standardize(const T* x, float center, float scale, float shift, T* z, int64_t n,
                                bool streamed) {
  const F c = splat(center), a = splat(scale), b = splat(shift);
  map(x, z, n, streamed, [c, a, b](F v) OPSMITH_ALWAYS_INLINE { return fma(v - c, a, b); });
}

template <class T>
OPSMITH_INLINE void standardize_rows(const T* x, int64_t rows, int64_t columns, const float* centers,
                                     const float* scales, const float* shifts, T* z, bool streamed) {
  // Rows of whole vectors, from an address on at which one may be streamed.
  const bool past_caches = streamed && columns % kLanes == 0 && unaligned(z, kLanes) == 0;
  for (int64_t row = 0; row < rows; ++row, x += columns, z += columns) {
    const auto value = [&](int64_t i) OPSMITH_ALWAYS_INLINE {
      return fma(load(x + i) - load(centers + i), load(scales + i), load(shifts + i));
    };
    int64_t i = 0;
    if (past_caches) {
      for (; i < columns; i += kLanes) {
        stream(z + i, value(i));
      }
      continue;
    }
    for (; i + kLanes <= columns; i += kLanes) {
      store(z + i, value(i));
    }
    if (i < columns) {
      const int64_t n = columns - i;
      store_some(z + i,
                 fma(load_some(x + i, n) - load_some(centers + i, n), load_some(scales + i, n),
                     load_some(shifts + i, n)),
                 n);
    }
  }
  if (past_caches) {
    end_streaming();
  }
}

template <class T>
OPSMITH_INLINE void gradient_sums(const T* g, const T* x, int64_t n, float center, float* sum_of,
                                  float* product_of) {
  const F c = splat(center);
  F s0 = zero(), s1 = zero(), p0 = zero(), p1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const F g0 = load(g + i), g1 = load(g + i + kLanes);
    s0 = s0 + g0;
    s1 = s1 + g1;
    p0 = fma(g0, load(x + i) - c, p0);
    p1 = fma(g1, load(x + i + kLanes) - c, p1);
  }
  for (; i < n; i += kLanes) {
    const int64_t lanes = least(n - i, kLanes);
    const F own = lanes_or(load_some(g + i, lanes), lanes, zero());
    s0 = s0 + own;
    p0 = fma(own, lanes_or(load_some(x + i, lanes) - c, lanes, zero()), p0);
  }
  *sum_of = sum(s0 + s1);
  *product_of = sum(p0 + p1);
}

template <int kVectors, class T>
OPSMITH_INLINE void gradient_sums_of_strip(const T* g, const T* x, int64_t rows, int64_t stride,
                                           int64_t lanes, const float* centers, float* sums,
                                           float* products) {
  const int64_t last = kVectors > 1 ? kLanes : lanes;
  const auto at = [&](const T* p, int v) OPSMITH_ALWAYS_INLINE {
    return kVectors > 1 || lanes == kLanes ? load(p + v * kLanes) : load_some(p, lanes);
  };
  F s[kVectors], p[kVectors], c[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    s[v] = zero();
    p[v] = zero();
    c[v] = load_some(centers + v * kLanes, last);
  }
  for (int64_t row = 0; row < rows; ++row, g += stride, x += stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F own = at(g, v);
      s[v] = s[v] + own;
      p[v] = fma(own, at(x, v) - c[v], p[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    store_some(sums + v * kLanes, s[v], last);
    store_some(products + v * kLanes, p[v], last);
  }
}

template <class T>
OPSMITH_INLINE void gradient_sums_of_columns(const T* g, const T* x, int64_t rows, int64_t stride,
                                             int64_t columns, const float* centers, float* sums,
                                             float* products) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
    gradient_sums_of_strip<2>(g + i, x + i, rows, stride, kLanes, centers + i, sums + i, products + i);
  }
  for (; i < columns; i += kLanes) {
    gradient_sums_of_strip<1>(g + i, x + i, rows, stride, least(columns - i, kLanes), centers + i, sums + i,
                              products + i);
  }
}

template <class T>
OPSMITH_INLINE void norm_gradient(const T* g, const T* x, float center, float slope, float along, float shift,
                                  T* z, int64_t n, bool streamed) {
  const F c = splat(center), a = splat(slope), b = splat(along), d = splat(shift);
  map(g, x, z, n, streamed, [=](Pair v) OPSMITH_ALWAYS_INLINE { return fma(v.x, a, fma(v.y - c, b, d)); });
}

template <class T>
OPSMITH_INLINE void norm_gradient_rows(const T* g, const T* x, int64_t rows, int64_t columns,
                                       const float* centers, const float* slopes, const float* alongs,
                                       const float* shifts, T* z) {
  for (int64_t row = 0; row < rows; ++row, g += columns, x += columns, z += columns) {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      const F rest = fma(load(x + i) - load(centers + i), load(alongs + i), load(shifts + i));
      store(z + i, fma(load(g + i), load(slopes + i), rest));
    }
    if (i < columns) {
      const int64_t n = columns - i;
      const F rest = fma(load_some(x + i, n) - load_some(centers + i, n), load_some(alongs + i, n),
                         load_some(shifts + i, n));
      store_some(z + i, fma(load_some(g + i, n), load_some(slopes + i, n), rest), n);
    }
  }
}

}  // namespace

#define OPSMITH_CHANNEL_NORM(T, suffix)                                                                    \
  void standardize_##suffix(const T* x, float center, float scale, float shift, T* z, int64_t n,           \
                            bool streamed) {                                                               \
    standardize(x, center, scale, shift, z, n, streamed);                                                  \
  }                                                                                                        \
  void standardize_rows_##suffix(const T* x, int64_t rows, int64_t columns, const float* centers,          \
                                 const float* scales, const float* shifts, T* z, bool streamed) {          \
    standardize_rows(x, rows, columns, centers, scales, shifts, z, streamed);                              \
  }                                                                                                        \
  void gradient_sums_##suffix(const T* g, const T* x, int64_t n, float center, float* sum_of,              \
                              float* product_of) {                                                         \
    gradient_sums(g, x, n, center, sum_of, product_of);                                                    \
  }                                                                                                        \
  void gradient_sums_of_columns_##suffix(const T* g, const T* x, int64_t rows, int64_t stride,             \
                                         int64_t columns, const float* centers, float* sums,               \
                                         float* products) {                                                \
    gradient_sums_of_columns(g, x, rows, stride, columns, centers, sums, products);                        \
  }                                                                                                        \
  void norm_gradient_##suffix(const T* g, const T* x, float center, float slope, float along, float shift, \
                              T* z, int64_t n, bool streamed) {                                            \
    norm_gradient(g, x, center, slope, along, shift, z, n, streamed);                                      \
  }                                                                                                        \
  void norm_gradient_rows_##suffix(const T* g, const T* x, int64_t rows, int64_t columns,                  \
                                   const float* centers, const float* slopes, const float* alongs,         \
                                   const float* shifts, T* z) {                                            \
    norm_gradient_rows(g, x, rows, columns, centers, slopes, alongs, shifts, z);                           \
  }
OPSMITH_CHANNEL_NORM(float, float)
OPSMITH_CHANNEL_NORM(Bfloat16, bfloat16)
OPSMITH_CHANNEL_NORM(Float16, float16)
#undef OPSMITH_CHANNEL_NORM

}  // namespace opsmith::optimized::OPSMITH_ISA
