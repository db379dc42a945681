// Elements of tensors of this library's dtypes from float32, and as float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "by_dtype.h"
#include "float_functions.h"

namespace opsmith::optimized {

// Rounded once, to the nearest.
template <class T>
void narrow(const float* x, T* y, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(x, n, y);
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    OPSMITH_BEST(narrow)(x, y, n);
  } else {
    OPSMITH_BEST(narrow_float16)(x, y, n);
  }
}

template <class T>
void narrow_to(const float* x, int64_t n, T* y, int64_t stride) {
  if (stride == 1) {
    narrow(x, y, n);
    return;
  }
  constexpr int64_t kBlock = 256;
  T narrowed[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    narrow(x + begin, narrowed, count);
    for (int64_t i = 0; i < count; ++i) {
      y[(begin + i) * stride] = narrowed[i];
    }
  }
}

// From element `at` on, `stride` elements apart.
inline void put_elements(const float* x, int64_t n, Tensor& to, int64_t at, int64_t stride) {
  with_element(to.scalar_type(), [&](auto element) {
    narrow_to(x, n, static_cast<decltype(element)*>(to.mutable_data_ptr()) + at, stride);
  });
}

inline float element_at(const Tensor& from, int64_t at) {
  float value = 0.0f;
  with_element(from.scalar_type(), [&](auto element) {
    value = widened(static_cast<const decltype(element)*>(from.const_data_ptr())[at]);
  });
  return value;
}

// Or `otherwise`, where there is no Tensor.
inline float element_at(const std::optional<Tensor>& from, int64_t at, float otherwise) {
  return from.has_value() ? element_at(*from, at) : otherwise;
}

inline void put_element(float x, Tensor& to, int64_t at) {
  put_elements(&x, 1, to, at, 1);
}

}  // namespace opsmith::optimized
