// Single numbers of Tensors whose dtype is one of the library's: statistics, and parameters of channels.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "by_dtype.h"
#include "simd/float_functions.h"

namespace opsmith::optimized {

inline float number_at(const Tensor& tensor, int64_t i) {
  float number = 0;
  with_element(tensor.scalar_type(), [&](auto element) {
    number = widened(static_cast<const decltype(element)*>(tensor.const_data_ptr())[i]);
  });
  return number;
}

// Or `otherwise`, where there is no Tensor.
inline float number_at(const std::optional<Tensor>& tensor, int64_t i, float otherwise) {
  return tensor.has_value() ? number_at(*tensor, i) : otherwise;
}

template <class T>
void put_numbers(const float* from, T* to, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(from, n, to);
  } else {
    OPSMITH_BEST(narrow)(from, to, n);
  }
}

inline void put_number(Tensor& tensor, int64_t i, float number) {
  with_element(tensor.scalar_type(), [&](auto element) {
    put_numbers(&number, static_cast<decltype(element)*>(tensor.mutable_data_ptr()) + i, 1);
  });
}

}  // namespace opsmith::optimized
