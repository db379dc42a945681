// The dtypes of this library, float32 and bfloat16, and which of them a selective build keeps.
#pragma once

#include "../common/dtypes.h"
#include "bfloat16.h"

namespace opsmith::optimized {

// Whether a selective build has any Tensor of the dtype, for code that several operators share.
inline constexpr bool kHasFloat = ::opsmith::selected("", ScalarType::Float);
inline constexpr bool kHasBfloat16 = ::opsmith::selected("", ScalarType::BFloat16);

inline bool is_taken(ScalarType dtype) {
  return (kHasFloat && dtype == ScalarType::Float) || (kHasBfloat16 && dtype == ScalarType::BFloat16);
}

// f(T{}) with the element type T of `dtype`, which is_taken().
template <class F>
void with_element(ScalarType dtype, const F& f) {
  if constexpr (kHasFloat) {
    if (dtype == ScalarType::Float) {
      return f(float{});
    }
  }
  if constexpr (kHasBfloat16) {
    if (dtype == ScalarType::BFloat16) {
      f(Bfloat16{});
    }
  }
}

// A function of simd/ for each dtype, null where no selected program calls it.
template <template <class> class Signature>
struct ByDtype {
  Signature<float>* on_float = nullptr;
  Signature<Bfloat16>* on_bfloat16 = nullptr;

  bool has(ScalarType dtype) const {
    return (dtype == ScalarType::Float && on_float != nullptr) ||
           (dtype == ScalarType::BFloat16 && on_bfloat16 != nullptr);
  }
  Signature<float>* of(float) const { return on_float; }
  Signature<Bfloat16>* of(Bfloat16) const { return on_bfloat16; }
};

inline float widened(float x) {
  return x;
}
inline float widened(Bfloat16 x) {
  return same_bits<float>(static_cast<uint32_t>(x.bits) << 16);
}

}  // namespace opsmith::optimized

// `functions` gets simd's `name`_float and `name`_bfloat16, where the operator is selected for their dtypes.
#define OPSMITH_SET_FUNCTIONS(functions, operator_name, name)                                   \
  if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::Float)) {    \
    (functions).on_float = OPSMITH_BEST(name##_float);                                          \
  }                                                                                             \
  if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::BFloat16)) { \
    (functions).on_bfloat16 = OPSMITH_BEST(name##_bfloat16);                                    \
  }
