// layer_norm with its gradients, and rms_norm, of one row.
//
// The variance is of the deviations from the mean, in a second pass over the row while it is in the
// first-level cache: a single pass over x² would cancel where the mean is large.
#include "row_total.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// y = (x - center)·scale·weight + bias, without the weights that are null. In the place of biases that are,
// it adds `no_bias`: 0, which a negative zero does not survive, or -0, which changes nothing.
template <class T, class W>
OPSMITH_INLINE void finish(const T* x, const W* weight, const W* bias, T* y, int64_t n, float center,
                           float scale, float no_bias, bool streamed) {
  const F a = splat(scale), c = splat(center), none = splat(no_bias);
  struct Operands {
    F x, weight, bias;
  };
  if (weight == nullptr && bias == nullptr) {
    map(x, y, n, streamed, [a, c, none](F v) OPSMITH_ALWAYS_INLINE { return fma(v - c, a, none); });
  } else if (bias == nullptr) {
    produce(
        y, n, streamed,
        [&](int64_t i) OPSMITH_ALWAYS_INLINE { return Operands{load(x + i), load(weight + i), zero()}; },
        [&](int64_t i, int64_t count) OPSMITH_ALWAYS_INLINE {
          return Operands{load_some(x + i, count), load_some(weight + i, count), zero()};
        },
        [a, c, none](Operands v) OPSMITH_ALWAYS_INLINE { return fma((v.x - c) * a, v.weight, none); });
  } else {
    const F one = splat(1.0f);
    produce(
        y, n, streamed,
        [&](int64_t i) OPSMITH_ALWAYS_INLINE {
          return Operands{load(x + i), weight == nullptr ? one : load(weight + i), load(bias + i)};
        },
        [&](int64_t i, int64_t count) OPSMITH_ALWAYS_INLINE {
          return Operands{load_some(x + i, count), weight == nullptr ? one : load_some(weight + i, count),
                          load_some(bias + i, count)};
        },
        [a, c](Operands v) OPSMITH_ALWAYS_INLINE { return fma((v.x - c) * a, v.weight, v.bias); });
  }
}

template <class T, class W>
OPSMITH_INLINE void layer_norm(const T* x, const W* weight, const W* bias, T* y, int64_t n, float eps,
                               float* mean, float* rstd, bool streamed) {
  const float count = static_cast<float>(n);
  const float center = row_total(x, n, [](F v) OPSMITH_ALWAYS_INLINE { return v; }) / count;
  const F middle = splat(center);
  const float variance = row_total(x, n,
                                   [middle](F v) OPSMITH_ALWAYS_INLINE {
                                     const F deviation = v - middle;
                                     return deviation * deviation;
                                   }) /
                         count;
  const float scale = 1.0f / __builtin_sqrtf(variance + eps);
  *mean = center;
  *rstd = scale;
  finish(x, weight, bias, y, n, center, scale, 0.0f, streamed);
}

// With h = (x - mean)·rstd and w = g·weight: rstd·(w - Σw/n - h·Σ(w·h)/n) is x's gradient, and weight's and
// bias's get g·h and g.
template <class T, class W>
OPSMITH_INLINE void layer_norm_gradient(const T* g, const T* x, const W* weight, T* z, int64_t n, float mean,
                                        float rstd, float* weight_sums, float* bias_sums) {
  const F center = splat(mean), scale = splat(rstd), one = splat(1.0f);
  const auto each = [&](int64_t i, int64_t end, auto step) OPSMITH_ALWAYS_INLINE {
    for (; i + kLanes <= end; i += kLanes) {
      step(i, kLanes, load(g + i), (load(x + i) - center) * scale,
           weight == nullptr ? one : load(weight + i));
    }
    if (i < end) {
      const int64_t count = end - i;
      step(i, count, lanes_or(load_some(g + i, count), count, zero()),
           (load_some(x + i, count) - center) * scale,
           weight == nullptr ? one : load_some(weight + i, count));
    }
  };
  double total = 0, product = 0;
  for (int64_t from = 0; from < n; from += kAddedInFloat) {
    F grads = zero(), products = zero();
    each(from, least(n, from + kAddedInFloat),
         [&](int64_t i, int64_t count, F grad, F h, F w) OPSMITH_ALWAYS_INLINE {
           grads = fma(grad, w, grads);
           products = fma(grad * w, lanes_or(h, count, zero()), products);
           if (weight_sums != nullptr) {
             store_some(weight_sums + i, fma(grad, h, load_some(weight_sums + i, count)), count);
           }
           if (bias_sums != nullptr) {
             store_some(bias_sums + i, grad + load_some(bias_sums + i, count), count);
           }
         });
    total += static_cast<double>(sum(grads));
    product += static_cast<double>(sum(products));
  }
  if (z == nullptr) {
    return;
  }
  const float each_share = 1.0f / static_cast<float>(n);
  const F shift = splat(-static_cast<float>(total) * each_share),
          slope = splat(-static_cast<float>(product) * each_share);
  // The parts of a single element cancel, but for their rounding.
  const F factor = n == 1 ? zero() : scale;
  each(0, n, [&](int64_t i, int64_t count, F grad, F h, F w) OPSMITH_ALWAYS_INLINE {
    store_some(z + i, fma(h, slope, fma(grad, w, shift)) * factor, count);
  });
}

template <class T, class W>
OPSMITH_INLINE void rms_norm(const T* x, const W* weight, T* y, int64_t n, float eps, bool streamed) {
  const float square =
      row_total(x, n, [](F v) OPSMITH_ALWAYS_INLINE { return v * v; }) / static_cast<float>(n);
  finish(x, weight, static_cast<const W*>(nullptr), y, n, 0.0f, 1.0f / __builtin_sqrtf(square + eps), -0.0f,
         streamed);
}

}  // namespace

#define OPSMITH_NORM(T, W, suffix)                                                                        \
  void layer_norm_##suffix(const T* x, const W* weight, const W* bias, T* y, int64_t n, float eps,        \
                           float* mean, float* rstd, bool streamed) {                                     \
    layer_norm(x, weight, bias, y, n, eps, mean, rstd, streamed);                                         \
  }                                                                                                       \
  void rms_norm_##suffix(const T* x, const W* weight, T* y, int64_t n, float eps, bool streamed) {        \
    rms_norm(x, weight, y, n, eps, streamed);                                                             \
  }                                                                                                       \
  void layer_norm_gradient_##suffix(const T* g, const T* x, const W* weight, T* z, int64_t n, float mean, \
                                    float rstd, float* weight_sums, float* bias_sums) {                   \
    layer_norm_gradient(g, x, weight, z, n, mean, rstd, weight_sums, bias_sums);                          \
  }
OPSMITH_NORM(float, float, float)
OPSMITH_NORM(Bfloat16, Bfloat16, bfloat16)
OPSMITH_NORM(Bfloat16, float, bfloat16_float)
OPSMITH_NORM(Float16, Float16, float16)
OPSMITH_NORM(Float16, float, float16_float)

}  // namespace opsmith::optimized::OPSMITH_ISA
