// Element types of host-side kernels: how each is loaded, which type it is calculated in, how it is stored,
// and the choice of a type by a tensor's dtype at run time. Used by pointwise.h, reduction.h and kernels
// themselves.
#pragma once

#include <bit>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace opsmith {

// Half and BFloat16 are storage only: arithmetic on them is float's, as in ATen.
template <class T>
inline constexpr bool is_reduced_float = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
template <class T>
using compute_t = std::conditional_t<is_reduced_float<T>, float, T>;

template <class T>
inline compute_t<T> load_element(const T* p) {  // not "load": c10 has one, which would be found as well
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    return std::bit_cast<float>(static_cast<uint32_t>(p->x) << 16);
  } else if constexpr (std::is_same_v<T, bool>) {
    // A byte other than 0 and 1, as view(torch.bool) can make, is no valid bool to load.
    return *reinterpret_cast<const uint8_t*>(p) != 0;
  } else {
    return *p;
  }
}

template <class T, class V>
inline void store_element(T* p, V value) {
  if constexpr (std::is_same_v<T, c10::BFloat16> && std::is_same_v<V, float>) {
    // c10's conversion, written without a branch so that loops vectorise: to nearest even, NaN stays NaN.
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p->x = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
  } else {
    *p = static_cast<T>(value);
  }
}

// Sets of element types, from which a kernel's versions are made. A kernel's `dtypes` in kernels.yaml says
// the same.
template <class... T>
struct Types {};
using Floating = Types<float, double, c10::BFloat16, c10::Half>;
using Integral = Types<int64_t, int32_t>;
using Numeric = Types<float, double, c10::BFloat16, c10::Half, int64_t, int32_t>;
using Logical = Types<bool, int64_t, int32_t, uint8_t>;
using Real = Types<float, double, c10::BFloat16, c10::Half, int64_t, int32_t, int16_t, int8_t, uint8_t, bool>;

// Calls f.operator()<T>() for the T among the types that is `dtype`; raises NotImplementedError when there is
// none.
template <class... T, class F>
inline void with_dtype(Types<T...>, c10::ScalarType dtype, F&& f,
                       const std::source_location kernel = std::source_location::current()) {
  const bool found =
      ((dtype == c10::CppTypeToScalarType<T>::value ? (f.template operator()<T>(), true) : false) || ...);
  TORCH_CHECK_NOT_IMPLEMENTED(
      found, kernel.function_name(), " has no version for ", dtype,
      ". Leave this dtype out of the kernel's `dtypes` in its kernels.yaml, so that it "
      "falls back, or convert the tensor");
}

}  // namespace opsmith
