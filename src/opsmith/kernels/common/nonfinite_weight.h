// Infinite and NaN weights of a convolution, where the large feature map is made from the small one.
//
// Note [Gaps]
// A large map is computed as a convolution of the small one with zeros in the gaps between and around its
// pixels. Finite weights do nothing there, but zero times infinity is NaN, where the sum has no term. So, if
// a weight is not finite, the map is computed with 1 or -1 in the place of all such weights, and their own
// products are added to it: these are infinite or NaN, and so is then the sum, whatever the ones brought.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "convolution_shape.h"
#include "dtypes.h"
#include "strided_iteration.h"

namespace opsmith {
inline namespace lean_elements {

// The bits of the exponent, all of which are set in what is not finite; no bits for other dtypes.
struct Exponent {
  int64_t width;
  uint64_t bits;
};
inline Exponent exponent_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return {4, 0x7f800000u};
    case ScalarType::Double:
      return {8, 0x7ff0000000000000u};
    case ScalarType::Half:
      return {2, 0x7c00u};
    case ScalarType::BFloat16:
      return {2, 0x7f80u};
    default:
      return {1, 0};
  }
}

namespace detail {

template <class U>
bool has_all_bits(const U* elements, int64_t n, int64_t stride, U bits) {
  constexpr int64_t kAtOnce = 1024;
  for (int64_t begin = 0; begin < n; begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, n - begin);
    const U* const from = elements + begin * stride;
    U found = 0;
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) {
        found |= static_cast<U>((from[i] & bits) == bits);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        found |= static_cast<U>((from[i * stride] & bits) == bits);
      }
    }
    if (found != 0) {
      return true;
    }
  }
  return false;
}

// f(U{}, bits) with an unsigned type of the elements' width; nothing where all elements are finite, or no
// selected program has the dtype.
template <class F>
void with_exponent(ScalarType dtype, const F& f) {
  const Exponent exponent = exponent_of(dtype);
  if constexpr (selected("", ScalarType::Half) || selected("", ScalarType::BFloat16)) {
    if (exponent.width == 2) {
      f(uint16_t{}, static_cast<uint16_t>(exponent.bits));
    }
  }
  if constexpr (selected("", ScalarType::Float)) {
    if (exponent.width == 4) {
      f(uint32_t{}, static_cast<uint32_t>(exponent.bits));
    }
  }
  if constexpr (selected("", ScalarType::Double)) {
    if (exponent.width == 8) {
      f(uint64_t{}, exponent.bits);
    }
  }
}

}  // namespace detail

// Whether an element is infinite or NaN.
inline bool has_nonfinite(const Tensor& tensor) {
  std::atomic<bool> found{false};
  detail::with_exponent(tensor.scalar_type(), [&](auto type, auto bits) {
    using U = decltype(type);
    const U* const data = static_cast<const U*>(tensor.const_data_ptr());
    auto all = strided_over(tensor);
    const auto row = all.pop();
    const auto look = [&](int64_t offset, int64_t n) {
      if (!found.load(std::memory_order_relaxed) &&
          detail::has_all_bits(data + offset, n, row.stride[0], bits)) {
        found.store(true, std::memory_order_relaxed);
      }
    };
    if (all.numel() == 1) {
      parallel(row.size, kGrain,
               [&](int64_t begin, int64_t end) { look(begin * row.stride[0], end - begin); });
    } else if (row.size > 0) {
      parallel(all.numel(), grain_size(row.size), [&](int64_t begin, int64_t end) {
        all.for_each(begin, end, [&](const auto& at, const auto&) { look(at[0], row.size); });
      });
    }
  });
  return found.load();
}

// Whether a large map may have products of gaps in it. The smaller of the two is looked at first.
inline bool has_products_of_gaps(const Tensor& weight, const Tensor& large) {
  return (large.numel() >= weight.numel() || has_nonfinite(large)) && has_nonfinite(weight);
}

// 1 with its sign in the place of each element that is not finite.
inline void make_finite(ScalarType dtype, void* elements, int64_t n) {
  detail::with_exponent(dtype, [&](auto type, auto bits) {
    using U = decltype(type);
    U* const each = static_cast<U*>(elements);
    const U one = static_cast<U>(bits >> 1 & bits);
    const U sign = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
    for (int64_t i = 0; i < n; ++i) {
      each[i] = (each[i] & bits) == bits ? static_cast<U>((each[i] & sign) | one) : each[i];
    }
  });
}

namespace detail {

// The pixels of the small map, begin…end, that meet the large one at a place in the kernel.
struct Meeting {
  int64_t begin;
  int64_t end;
  int64_t first;  // the large map's pixel that meets `begin`
};
inline Meeting meeting(const ConvolutionWindow& window, int64_t d, int64_t place, int64_t small,
                       int64_t large) {
  const int64_t shift = place * window.dilation[d] - window.padding[d], stride = window.stride[d];
  const int64_t begin = std::max<int64_t>(0, -floor_divided(shift, stride));
  const int64_t end = std::min(small, floor_divided(large - 1 - shift, stride) + 1);
  return {begin, end, begin * stride + shift};
}

}  // namespace detail

// Adds to the large map what the weights that are not finite make of the small one. All are of dtype T.
template <class T>
void add_nonfinite_products(const ConvolutionWindow& window, int64_t groups, const Tensor& weight,
                            const Tensor& small_tensor, Tensor& large_tensor) {
  using C = compute_t<T>;
  const int64_t spatial = weight.dim() - 2;
  const auto weights = feature_map_at(static_cast<const T*>(weight.const_data_ptr()), weight, spatial);
  const auto small =
      feature_map_at(static_cast<const T*>(small_tensor.const_data_ptr()), small_tensor, spatial);
  const auto large = feature_map_at(static_cast<T*>(large_tensor.mutable_data_ptr()), large_tensor, spatial);
  const int64_t small_channels = small.channels / groups, large_channels = large.channels / groups;
  const auto add = [&](int64_t sample, int64_t small_channel, int64_t large_channel,
                       const int64_t (&place)[kSpatial], C factor) {
    detail::Meeting met[kSpatial];
    for (int64_t d = 0; d < kSpatial; ++d) {
      met[d] = detail::meeting(window, d, place[d], small.size[d], large.size[d]);
    }
    const T* const from = small.data + sample * small.batch_stride + small_channel * small.channel_stride;
    T* const to = large.data + sample * large.batch_stride + large_channel * large.channel_stride;
    for (int64_t x = met[0].begin; x < met[0].end; ++x) {
      for (int64_t y = met[1].begin; y < met[1].end; ++y) {
        const T* const row =
            from + x * small.stride[0] + y * small.stride[1] + met[2].begin * small.stride[2];
        T* const sums = to + (met[0].first + (x - met[0].begin) * window.stride[0]) * large.stride[0] +
                        (met[1].first + (y - met[1].begin) * window.stride[1]) * large.stride[1] +
                        met[2].first * large.stride[2];
        const int64_t step = window.stride[2] * large.stride[2];
        for (int64_t z = 0; z < met[2].end - met[2].begin; ++z) {
          sums[z * step] = static_cast<T>(static_cast<C>(sums[z * step]) +
                                          static_cast<C>(row[z * small.stride[2]]) * factor);
        }
      }
    }
  };
  // Each task has a channel of the large map.
  parallel(large.channels, 1, [&](int64_t begin, int64_t end) {
    int64_t place[kSpatial];
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t i = 0; i < small_channels; ++i) {
        const int64_t small_channel = channel / large_channels * small_channels + i;
        const T* const own = weights.data + small_channel * weights.batch_stride +
                             channel % large_channels * weights.channel_stride;
        for (place[0] = 0; place[0] < window.kernel[0]; ++place[0]) {
          for (place[1] = 0; place[1] < window.kernel[1]; ++place[1]) {
            for (place[2] = 0; place[2] < window.kernel[2]; ++place[2]) {
              const C factor =
                  static_cast<C>(own[place[0] * weights.stride[0] + place[1] * weights.stride[1] +
                                     place[2] * weights.stride[2]]);
              for (int64_t sample = 0; !std::isfinite(factor) && sample < small.batch; ++sample) {
                add(sample, small_channel, channel, place, factor);
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace lean_elements
}  // namespace opsmith
