// softmax and log_softmax along contiguous elements, and along the rows of a matrix for each column.
//
// e^(x - max) / Σ e^(x - max), and x - max - log Σ e^(x - max); and their gradients from the results.
#include "elementary.h"
#include "row_total.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// The largest element; any NaN makes the sum NaN that follows, so that this one may be lost.
template <class T>
OPSMITH_INLINE float max_of(const T* x, int64_t n) {
  F m0 = splat(-kInfinity), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    m0 = max(load(x + i), m0);
    m1 = max(load(x + i + kLanes), m1);
    m2 = max(load(x + i + 2 * kLanes), m2);
    m3 = max(load(x + i + 3 * kLanes), m3);
  }
  for (; i + kLanes <= n; i += kLanes) {
    m0 = max(load(x + i), m0);
  }
  if (i < n) {
    m1 = max(lanes_or(load_some(x + i, n - i), n - i, splat(-kInfinity)), m1);
  }
  return max_lane(max(max(m0, m1), max(m2, m3)));
}

OPSMITH_INLINE void softmax_row(const float* x, float* y, int64_t n, bool streamed) {
  const F top = splat(max_of(x, n));
  if (!streamed) {
    // Twice through y, which is in the caches, rather than exp twice.
    double whole = 0;
    for (int64_t i = 0; i < n;) {
      const int64_t end = least(n, i + kAddedInFloat);
      F s0 = zero(), s1 = zero();
      for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
        const F a = exp(load(x + i) - top), b = exp(load(x + i + kLanes) - top);
        store(y + i, a);
        store(y + i + kLanes, b);
        s0 = s0 + a;
        s1 = s1 + b;
      }
      for (; i < end; i += kLanes) {
        const int64_t count = least(end - i, kLanes);
        const F a = exp(load_some(x + i, count) - top);
        store_some(y + i, a, count);
        s0 = s0 + lanes_or(a, count, zero());
      }
      whole += static_cast<double>(sum(s0 + s1));
    }
    const F factor = splat(1.0f / static_cast<float>(whole));
    map(y, y, n, false, [factor](F v) OPSMITH_ALWAYS_INLINE { return v * factor; });
    return;
  }
  const F factor = splat(1.0f / row_total(x, n, [top](F v) OPSMITH_ALWAYS_INLINE { return exp(v - top); }));
  map(x, y, n, true, [top, factor](F v) OPSMITH_ALWAYS_INLINE { return exp(v - top) * factor; });
}

// y would round what is summed, so exp is computed twice.
template <class T>
OPSMITH_INLINE void softmax_row(const T* x, T* y, int64_t n, bool streamed) {
  const F top = splat(max_of(x, n));
  const F factor = splat(1.0f / row_total(x, n, [top](F v) OPSMITH_ALWAYS_INLINE { return exp(v - top); }));
  map(x, y, n, streamed, [top, factor](F v) OPSMITH_ALWAYS_INLINE { return exp(v - top) * factor; });
}

template <class T>
OPSMITH_INLINE void log_softmax_row(const T* x, T* y, int64_t n, bool streamed) {
  const F top = splat(max_of(x, n));
  const F shift =
      splat(__builtin_logf(row_total(x, n, [top](F v) OPSMITH_ALWAYS_INLINE { return exp(v - top); })));
  map(x, y, n, streamed, [top, shift](F v) OPSMITH_ALWAYS_INLINE { return v - top - shift; });
}

// Columns of V whole vectors, or (V = 1) of `lanes` lanes of one: each row's cache lines are used as a whole.
template <int V>
struct Columns {
  F of[V];
};

template <int V, class T, class Step>
OPSMITH_INLINE void each_row(const T* x, int64_t n, int64_t stride, int64_t lanes, Step step) {
  for (int64_t i = 0; i < n; ++i, x += stride) {
    for (int v = 0; v < V; ++v) {
      step(i, v, V == 1 ? load_some(x, lanes) : load(x + v * kLanes));
    }
  }
}

template <int V, bool kLog, class T>
OPSMITH_INLINE void columns_of(const T* x, T* y, int64_t n, int64_t stride, int64_t lanes) {
  Columns<V> top, total;
  for (int v = 0; v < V; ++v) {
    top.of[v] = splat(-kInfinity);
    total.of[v] = zero();
  }
  each_row<V>(x, n, stride, lanes,
              [&](int64_t, int v, F at) OPSMITH_ALWAYS_INLINE { top.of[v] = max(at, top.of[v]); });
  each_row<V>(x, n, stride, lanes, [&](int64_t, int v, F at) OPSMITH_ALWAYS_INLINE {
    total.of[v] = total.of[v] + exp(at - top.of[v]);
  });
  for (int v = 0; v < V; ++v) {
    if constexpr (kLog) {
      float logarithms[kLanes];
      store(logarithms, total.of[v]);
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        logarithms[lane] = __builtin_logf(logarithms[lane]);
      }
      total.of[v] = load(logarithms);
    } else {
      total.of[v] = splat(1.0f) / total.of[v];
    }
  }
  each_row<V>(x, n, stride, lanes, [&](int64_t i, int v, F at) OPSMITH_ALWAYS_INLINE {
    const F below = at - top.of[v];
    const F result = kLog ? below - total.of[v] : exp(below) * total.of[v];
    if (V == 1) {
      store_some(y + i * stride, result, lanes);
    } else {
      store(y + i * stride + v * kLanes, result);
    }
  });
}

// y (g - Σ g y), and of log_softmax g - e^y Σ g.
template <bool kLog>
OPSMITH_INLINE F gradient_of(F g, F y, F total) {
  return kLog ? g - exp(y) * total : y * (g - total);
}

template <bool kLog, class T>
OPSMITH_INLINE void gradient_row(const T* g, const T* y, T* z, int64_t n) {
  F sums = zero();
  const auto add = [&](F a, F b) OPSMITH_ALWAYS_INLINE { sums = kLog ? sums + a : fma(a, b, sums); };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    add(load(g + i), load(y + i));
  }
  if (i < n) {
    add(lanes_or(load_some(g + i, n - i), n - i, zero()), lanes_or(load_some(y + i, n - i), n - i, zero()));
  }
  const F all = splat(sum(sums));
  map(g, y, z, n, false, [all](Pair v) OPSMITH_ALWAYS_INLINE { return gradient_of<kLog>(v.x, v.y, all); });
}

template <bool kLog, class T>
OPSMITH_INLINE void gradient_columns(const T* g, const T* y, T* z, int64_t n, int64_t stride,
                                     int64_t columns) {
  for (int64_t j = 0; j < columns; j += kLanes) {
    const int64_t lanes = least(columns - j, kLanes);
    F sums = zero();
    for (int64_t i = 0; i < n; ++i) {
      const F a = load_some(g + i * stride + j, lanes);
      sums = kLog ? sums + a : fma(a, load_some(y + i * stride + j, lanes), sums);
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * stride + j;
      store_some(z + at, gradient_of<kLog>(load_some(g + at, lanes), load_some(y + at, lanes), sums), lanes);
    }
  }
}

template <bool kLog, class T>
OPSMITH_INLINE void all_columns(const T* x, T* y, int64_t n, int64_t stride, int64_t columns) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
    columns_of<4, kLog>(x + i, y + i, n, stride, kLanes);
  }
  for (; i < columns; i += kLanes) {
    columns_of<1, kLog>(x + i, y + i, n, stride, least(columns - i, kLanes));
  }
}

}  // namespace

#define OPSMITH_SOFTMAX(T, suffix)                                                                    \
  void softmax_##suffix(const T* x, T* y, int64_t n, bool streamed) {                                 \
    softmax_row(x, y, n, streamed);                                                                   \
  }                                                                                                   \
  void log_softmax_##suffix(const T* x, T* y, int64_t n, bool streamed) {                             \
    log_softmax_row(x, y, n, streamed);                                                               \
  }                                                                                                   \
  void softmax_columns_##suffix(const T* x, T* y, int64_t n, int64_t stride, int64_t columns) {       \
    all_columns<false>(x, y, n, stride, columns);                                                     \
  }                                                                                                   \
  void log_softmax_columns_##suffix(const T* x, T* y, int64_t n, int64_t stride, int64_t columns) {   \
    all_columns<true>(x, y, n, stride, columns);                                                      \
  }                                                                                                   \
  void softmax_gradient_##suffix(const T* g, const T* y, T* z, int64_t n) {                           \
    gradient_row<false>(g, y, z, n);                                                                  \
  }                                                                                                   \
  void log_softmax_gradient_##suffix(const T* g, const T* y, T* z, int64_t n) {                       \
    gradient_row<true>(g, y, z, n);                                                                   \
  }                                                                                                   \
  void softmax_gradient_columns_##suffix(const T* g, const T* y, T* z, int64_t n, int64_t stride,     \
                                         int64_t columns) {                                           \
    gradient_columns<false>(g, y, z, n, stride, columns);                                             \
  }                                                                                                   \
  void log_softmax_gradient_columns_##suffix(const T* g, const T* y, T* z, int64_t n, int64_t stride, \
                                             int64_t columns) {                                       \
    gradient_columns<true>(g, y, z, n, stride, columns);                                              \
  }
OPSMITH_SOFTMAX(float, float)
OPSMITH_SOFTMAX(Bfloat16, bfloat16)
OPSMITH_SOFTMAX(Float16, float16)

}  // namespace opsmith::optimized::OPSMITH_ISA
