// The dtypes of this library, float32, bfloat16 and float16, and which of them a selective build keeps.
#pragma once

#include <type_traits>

#include "../common/dtypes.h"
#include "bfloat16.h"
#include "float16.h"

namespace opsmith::optimized {

// Whether a selective build has any Tensor of the dtype, for code that several operators share.
inline constexpr bool kHasFloat = ::opsmith::selected("", ScalarType::Float);
inline constexpr bool kHasBfloat16 = ::opsmith::selected("", ScalarType::BFloat16);
inline constexpr bool kHasFloat16 = ::opsmith::selected("", ScalarType::Half);

inline bool is_taken(ScalarType dtype) {
  return (kHasFloat && dtype == ScalarType::Float) || (kHasBfloat16 && dtype == ScalarType::BFloat16) ||
         (kHasFloat16 && dtype == ScalarType::Half);
}

// The dtypes that an operator takes, as its errors say it.
#define OPSMITH_TAKEN "float32, bfloat16 or float16"

template <class T>
inline constexpr ScalarType kDtypeOf = std::is_same_v<T, float>      ? ScalarType::Float
                                       : std::is_same_v<T, Bfloat16> ? ScalarType::BFloat16
                                                                     : ScalarType::Half;

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
      return f(Bfloat16{});
    }
  }
  if constexpr (kHasFloat16) {
    if (dtype == ScalarType::Half) {
      f(Float16{});
    }
  }
}

// A function of simd/ for each dtype, null where no selected program calls it.
template <template <class> class Signature>
struct ByDtype {
  Signature<float>* on_float = nullptr;
  Signature<Bfloat16>* on_bfloat16 = nullptr;
  Signature<Float16>* on_float16 = nullptr;

  bool has(ScalarType dtype) const {
    return (dtype == ScalarType::Float && on_float != nullptr) ||
           (dtype == ScalarType::BFloat16 && on_bfloat16 != nullptr) ||
           (dtype == ScalarType::Half && on_float16 != nullptr);
  }
  Signature<float>* of(float) const { return on_float; }
  Signature<Bfloat16>* of(Bfloat16) const { return on_bfloat16; }
  Signature<Float16>* of(Float16) const { return on_float16; }
};

inline float widened(float x) {
  return x;
}
inline float widened(Bfloat16 x) {
  return same_bits<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline float widened(Float16 x) {
  return static_cast<float>(executorch::aten::Half(x.bits, executorch::aten::Half::from_bits()));
}

}  // namespace opsmith::optimized

// `functions` gets simd's `name`_float, `name`_bfloat16 and `name`_float16, where the operator is selected
// for their dtypes.
#define OPSMITH_SET_FUNCTIONS(functions, operator_name, name)                                   \
  if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::Float)) {    \
    (functions).on_float = OPSMITH_BEST(name##_float);                                          \
  }                                                                                             \
  if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::BFloat16)) { \
    (functions).on_bfloat16 = OPSMITH_BEST(name##_bfloat16);                                    \
  }                                                                                             \
  if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::Half)) {     \
    (functions).on_float16 = OPSMITH_BEST(name##_float16);                                      \
  }

// The one of T.
#define OPSMITH_BEST_OF(T, name)                                              \
  [] {                                                                        \
    if constexpr (std::is_same_v<T, float>) {                                 \
      return OPSMITH_BEST(name##_float);                                      \
    } else if constexpr (std::is_same_v<T, ::opsmith::optimized::Bfloat16>) { \
      return OPSMITH_BEST(name##_bfloat16);                                   \
    } else {                                                                  \
      return OPSMITH_BEST(name##_float16);                                    \
    }                                                                         \
  }()

// compute(simd's function `name` of the dtype, and of parameters of float32 or of the same); nothing where no
// selected program calls the operator with it.
#define OPSMITH_WITH_PARAMETERS(operator_name, dtype, float_parameters, name, compute)               \
  {                                                                                                  \
    const auto& with_function = compute;                                                             \
    if ((dtype) == ::executorch::aten::ScalarType::Float) {                                          \
      if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::Float)) {     \
        with_function(OPSMITH_BEST(name##_float));                                                   \
      }                                                                                              \
    } else if ((dtype) == ::executorch::aten::ScalarType::BFloat16) {                                \
      if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::BFloat16)) {  \
        float_parameters ? with_function(OPSMITH_BEST(name##_bfloat16_float))                        \
                         : with_function(OPSMITH_BEST(name##_bfloat16));                             \
      }                                                                                              \
    } else if constexpr (::opsmith::selected(operator_name, ::executorch::aten::ScalarType::Half)) { \
      float_parameters ? with_function(OPSMITH_BEST(name##_float16_float))                           \
                       : with_function(OPSMITH_BEST(name##_float16));                                \
    }                                                                                                \
  }
