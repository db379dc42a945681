// What normalisations of rows share: the functions of simd/, and what their parameters have to be besides.
#pragma once

#include <cstdint>

#include "../common/norm.h"
#include "by_dtype.h"
#include "threads.h"

namespace opsmith::optimized::native {

// Shorter rows are not streamed: each ends with a fence.
inline constexpr int64_t kStreamedRow = 4096;
// Of an element, beside adding it.
inline constexpr int64_t kNormCost = 3;

// Whether any of the parameters has float32.
inline bool has_float(const OptionalTensor& a, const OptionalTensor& b = std::nullopt) {
  return (a.has_value() && a->scalar_type() == ScalarType::Float) ||
         (b.has_value() && b->scalar_type() == ScalarType::Float);
}

// Whether weight and bias, where there are both, have one dtype, which the loops ask for.
inline bool have_one_dtype(KernelRuntimeContext& context, const char* name, const OptionalTensor& weight,
                           const OptionalTensor& bias) {
  return !weight.has_value() || !bias.has_value() || weight->scalar_type() == bias->scalar_type() ||
         reject(context, Error::NotSupported, "%s: weight and bias have one dtype", name);
}

inline bool is_streamed(const Tensor& x, const NormLines& rows) {
  return static_cast<int64_t>(x.nbytes()) >= kStreamedBytes && rows.length >= kStreamedRow;
}

template <class T>
const T* data(const OptionalTensor& parameter) {
  return parameter.has_value() ? static_cast<const T*>(parameter->const_data_ptr()) : nullptr;
}

template <class T, class W>
using LayerNorm = void(const T* x, const W* weight, const W* bias, T* y, int64_t n, float eps, float* mean,
                       float* rstd, bool streamed);
template <class T, class W>
using RmsNorm = void(const T* x, const W* weight, T* y, int64_t n, float eps, bool streamed);

}  // namespace opsmith::optimized::native
