// Largest and smallest elements of rows and of columns over rows, and where they stand. NaN counts as larger
// and as smaller than any number; of several that are equal, the first is taken.
#include "vector.h"
#include "statistics_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// max() and min() give their second operand where one is NaN: `held` stays NaN, and `x` is looked at.
struct Largest {
  OPSMITH_INLINE F of(F held, F x) { return at_most(x, x, max(x, held), x); }
  // `then` where x is past held.
  OPSMITH_INLINE F past(F held, F x, F then, F otherwise) { return less(held, x, then, otherwise); }
  OPSMITH_INLINE float of_one(float held, float x) { return held != held || x <= held ? held : x; }
  static constexpr float kStart = -__builtin_inff();
};
struct Smallest {
  OPSMITH_INLINE F of(F held, F x) { return at_most(x, x, min(x, held), x); }
  OPSMITH_INLINE F past(F held, F x, F then, F otherwise) { return less(x, held, then, otherwise); }
  OPSMITH_INLINE float of_one(float held, float x) { return held != held || x >= held ? held : x; }
  static constexpr float kStart = __builtin_inff();
};

template <class Order, class T>
OPSMITH_INLINE void each(const T* x, int64_t rows, int64_t stride, int64_t n, float* best) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* const p = x + row * stride;
    float found = best[row];
    int64_t i = 0;
    if (n >= kLanes) {
      F s0 = load(p), s1 = s0, s2 = s0, s3 = s0;
      for (i = kLanes; i + 4 * kLanes <= n; i += 4 * kLanes) {
        s0 = Order::of(s0, load(p + i));
        s1 = Order::of(s1, load(p + i + kLanes));
        s2 = Order::of(s2, load(p + i + 2 * kLanes));
        s3 = Order::of(s3, load(p + i + 3 * kLanes));
      }
      for (; i + kLanes <= n; i += kLanes) {
        s0 = Order::of(s0, load(p + i));
      }
      if (i < n) {
        s1 = Order::of(s1, load(p + n - kLanes));  // some of them again
        i = n;
      }
      float lanes[kLanes];
      store(lanes, Order::of(Order::of(s0, s1), Order::of(s2, s3)));
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        found = Order::of_one(found, lanes[lane]);
      }
    }
    for (; i < n; ++i) {
      found = Order::of_one(found, widened_one(p[i]));
    }
    best[row] = found;
  }
}

template <class Order, class T>
OPSMITH_INLINE void of_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
    float* const to = best + column;
    F s0 = load(to), s1 = load(to + kLanes), s2 = load(to + 2 * kLanes), s3 = load(to + 3 * kLanes);
    const T* p = x + column;
    for (int64_t row = 0; row < rows; ++row, p += stride) {
      s0 = Order::of(s0, load(p));
      s1 = Order::of(s1, load(p + kLanes));
      s2 = Order::of(s2, load(p + 2 * kLanes));
      s3 = Order::of(s3, load(p + 3 * kLanes));
    }
    store(to, s0);
    store(to + kLanes, s1);
    store(to + 2 * kLanes, s2);
    store(to + 3 * kLanes, s3);
  }
  for (; column < columns; column += kLanes) {
    const int64_t lanes = least(columns - column, kLanes);
    F s = load_some(best + column, lanes);
    const T* p = x + column;
    for (int64_t row = 0; row < rows; ++row, p += stride) {
      s = Order::of(s, load_some(p, lanes));
    }
    store_some(best + column, s, lanes);
  }
}

// Of kVectors·kLanes columns, or of `lanes`.
template <class Order, int kVectors, class T>
OPSMITH_INLINE void places_of_strip(const T* x, int64_t rows, int64_t stride, int64_t lanes, float* best,
                                    int32_t* places) {
  const auto at = [&](const T* p, int v) OPSMITH_ALWAYS_INLINE {
    return kVectors > 1 || lanes == kLanes ? load(p + v * kLanes) : load_some(p, lanes);
  };
  F held[kVectors], which[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    held[v] = at(x, v);
    which[v] = zero();
  }
  for (int64_t row = 1; row < rows; ++row) {
    const F own = splat(static_cast<float>(row));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F value = at(x + row * stride, v);
      const F taken = at_most(value, value, Order::past(held[v], value, own, which[v]), own);
      which[v] = at_most(held[v], held[v], taken, which[v]);
      held[v] = Order::of(held[v], value);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t n = kVectors > 1 ? kLanes : lanes;
    float rows_of_best[kLanes];
    store(rows_of_best, which[v]);
    store_some(best + v * kLanes, held[v], n);
    for (int64_t i = 0; i < n; ++i) {
      places[v * kLanes + i] = static_cast<int32_t>(rows_of_best[i]);
    }
  }
}

template <class Order, class T>
OPSMITH_INLINE void places(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best,
                           int32_t* rows_of_best) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= columns; column += 4 * kLanes) {
    places_of_strip<Order, 4>(x + column, rows, stride, kLanes, best + column, rows_of_best + column);
  }
  for (; column < columns; column += kLanes) {
    places_of_strip<Order, 1>(x + column, rows, stride, least(columns - column, kLanes), best + column,
                              rows_of_best + column);
  }
}

template <class T>
OPSMITH_INLINE int64_t first_place(const T* x, int64_t n, float value) {
  const F wanted = splat(value), one = splat(1.0f), none = zero();
  const bool is_nan = value != value;
  // 1 where an element is the value.
  const auto hit = [&](F v) OPSMITH_ALWAYS_INLINE {
    return is_nan ? at_most(v, v, none, one) : at_most(v, wanted, at_most(wanted, v, one, none), none);
  };
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const F two = max(hit(load(x + i)), hit(load(x + i + kLanes)));
    const F more = max(hit(load(x + i + 2 * kLanes)), hit(load(x + i + 3 * kLanes)));
    if (max_lane(max(two, more)) > 0.0f) {
      break;
    }
  }
  for (; i < n; ++i) {
    const float own = widened_one(x[i]);
    if (own == value || (is_nan && own != own)) {
      break;
    }
  }
  return i;
}

}  // namespace

#define OPSMITH_EXTREMUM(T, suffix, name, Order)                                                            \
  void name##_each_##suffix(const T* x, int64_t rows, int64_t stride, int64_t n, float* best) {             \
    each<Order>(x, rows, stride, n, best);                                                                  \
  }                                                                                                         \
  void name##_of_columns_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best) { \
    of_columns<Order>(x, rows, stride, columns, best);                                                      \
  }                                                                                                         \
  void name##_places_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best,       \
                              int32_t* rows_of_best) {                                                      \
    places<Order>(x, rows, stride, columns, best, rows_of_best);                                            \
  }
#define OPSMITH_EXTREMA(T, suffix)                                   \
  OPSMITH_EXTREMUM(T, suffix, largest, Largest)                      \
  OPSMITH_EXTREMUM(T, suffix, smallest, Smallest)                    \
  int64_t first_place_##suffix(const T* x, int64_t n, float value) { \
    return first_place(x, n, value);                                 \
  }
OPSMITH_EXTREMA(float, float)
OPSMITH_EXTREMA(Bfloat16, bfloat16)
OPSMITH_EXTREMA(Float16, float16)
#undef OPSMITH_EXTREMA
#undef OPSMITH_EXTREMUM

}  // namespace opsmith::optimized::OPSMITH_ISA
