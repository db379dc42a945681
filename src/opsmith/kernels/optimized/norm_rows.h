// The rows of normalized tensors, and what their parameters have to be.
#pragma once

#include <cstdint>
#include <optional>

#include "../common/dims.h"
#include "by_dtype.h"
#include "threads.h"

namespace opsmith::optimized::native {

// Shorter rows are not streamed: each ends with a fence.
inline constexpr int64_t kStreamedRow = 4096;
// Of an element, beside adding it.
inline constexpr int64_t kNormCost = 3;

using Shape = ArrayRef<int64_t>;

// The trailing dimensions of x have the normalized shape.
inline bool ends_with(const Tensor& x, Shape shape) {
  const auto dims = static_cast<ssize_t>(shape.size());
  if (dims == 0 || dims > x.dim()) {
    return false;
  }
  for (ssize_t d = 0; d < dims; ++d) {
    if (x.sizes()[x.dim() - dims + d] != shape[d]) {
      return false;
    }
  }
  return true;
}

inline bool has_shape(const std::optional<Tensor>& parameter, Shape shape) {
  return !parameter.has_value() ||
         (parameter->dim() == static_cast<ssize_t>(shape.size()) && ends_with(*parameter, shape));
}

// Parameters of x's dtype, or of float32.
inline bool has_dtype(const std::optional<Tensor>& parameter, const Tensor& x) {
  return !parameter.has_value() || parameter->scalar_type() == x.scalar_type() ||
         parameter->scalar_type() == ScalarType::Float;
}

struct Rows {
  int64_t count;
  int64_t length;
  bool streamed;
};

inline Rows rows_of(const Tensor& x, Shape shape) {
  int64_t length = 1;
  for (const int64_t size : shape) {
    length *= size;
  }
  const bool streamed = static_cast<int64_t>(x.nbytes()) >= kStreamedBytes && length >= kStreamedRow;
  return {length == 0 ? 0 : x.numel() / length, length, streamed};
}

template <class T>
const T* data(const std::optional<Tensor>& parameter) {
  return parameter.has_value() ? static_cast<const T*>(parameter->const_data_ptr()) : nullptr;
}

template <class T, class W>
using LayerNorm = void(const T* x, const W* weight, const W* bias, T* y, int64_t n, float eps, float* mean,
                       float* rstd, bool streamed);
template <class T, class W>
using RmsNorm = void(const T* x, const W* weight, T* y, int64_t n, float eps, bool streamed);

}  // namespace opsmith::optimized::native
