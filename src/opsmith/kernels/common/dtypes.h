// Element types of kernels: how each is calculated with, how values are converted between them, and the
// choice of a type by a dtype at run time. Every switch asks opsmith::selected, so a selective build compiles
// no more than its programs use.
//
//   with_dtype<kName>(context, Real{}, dtype, [&](auto type) { using T = typename decltype(type)::type; ...
//   });
//
// where `inline constexpr char kName[] = "add.out"` names the operator. Both switches return false, with the
// call rejected, where there is no case for the dtype.
#pragma once

#include "dtype_names.h"
#include "checks.h"
#include "selection.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace opsmith {
// Names of its own for the linker: csrc has some of them too, for at::Tensor.
inline namespace lean_elements {

using executorch::aten::BFloat16;
using executorch::aten::Half;
using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;

template <class T>
struct Type {
  using type = T;
};
template <class... T>
struct Types {};

// "B" adds Bool; Floating and Real include Half and BFloat16, as in ATen's messages.
using Integral = Types<uint8_t, int8_t, int16_t, int32_t, int64_t>;
using IntegralB = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;
using Floating = Types<float, double, Half, BFloat16>;
using Real = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, Half, BFloat16>;
using RealB = Types<uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, Half, BFloat16, bool>;

template <class T>
inline constexpr ScalarType dtype_of = executorch::runtime::CppTypeToScalarType<T>::value;

template <class T>
inline constexpr bool is_reduced_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Half and BFloat16 are storage only: they are calculated with in float and rounded once, as in ATen.
template <class T>
using compute_t = std::conditional_t<is_reduced_float<T>, float, T>;

constexpr bool is_floating(ScalarType dtype) {
  return executorch::runtime::isFloatingType(dtype);
}
constexpr bool is_half_precision(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
}
constexpr ScalarType compute_dtype(ScalarType dtype) {
  return is_half_precision(dtype) ? ScalarType::Float : dtype;
}

template <class To, class From>
inline To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline constexpr ScalarType kEveryDtype[] = {
    ScalarType::Byte,  ScalarType::Char,   ScalarType::Short, ScalarType::Int,  ScalarType::Long,
    ScalarType::Float, ScalarType::Double, ScalarType::Half,  ScalarType::Bool, ScalarType::BFloat16};

// Whether the operator calculates in `computed`: its arguments have that dtype, or two that promote to it.
// Integers of every width are added and counted as Long.
constexpr bool calculates(const char* operator_name, ScalarType computed) {
  for (const ScalarType a : kEveryDtype) {
    if (!selected(operator_name, a)) {
      continue;
    }
    if (compute_dtype(a) == computed ||
        (computed == ScalarType::Long && executorch::runtime::isIntegralType(a, false))) {
      return true;
    }
    for (const ScalarType b : kEveryDtype) {
      if (selected(operator_name, b) && compute_dtype(executorch::runtime::promoteTypes(a, b)) == computed) {
        return true;
      }
    }
  }
  return false;
}

template <bool kIsSelected, class T, class F>
bool run_case(F& f) {
  if constexpr (kIsSelected) {
    f(Type<T>{});
  }
  return kIsSelected;
}

inline bool reject_dtype(KernelRuntimeContext& context, const char* operator_name, ScalarType dtype) {
  return reject(context, Error::NotSupported, "\"%s\" not implemented for '%s'", operator_name,
                name_of(dtype));
}

// Whether both have one dtype; rejects the call where they have not.
inline bool same_dtype(KernelRuntimeContext& context, const Tensor& self, const Tensor& out) {
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type(), InvalidArgument, false,
                "out must have self's dtype, %s, but has %s", name_of(self.scalar_type()),
                name_of(out.scalar_type()));
  return true;
}

// ExecuTorch's rule for most results, which ATen would convert: `out` has exactly the dtype. Rejects the call
// where that is broken.
inline bool out_is(KernelRuntimeContext& context, ScalarType dtype, const Tensor& out) {
  return out.scalar_type() == dtype || !in_executorch() ||
         reject(context, Error::InvalidArgument, "out must have the result's dtype, %s, but has %s",
                name_of(dtype), name_of(out.scalar_type()));
}

template <class... T>
constexpr bool contains(Types<T...>, ScalarType dtype) {
  return ((dtype_of<T> == dtype) || ...);
}

// Calls f(Type<T>{}) for the T among the types that is `dtype`.
template <const char* Name, class... T, class F>
bool with_dtype(KernelRuntimeContext& context, Types<T...>, ScalarType dtype, F&& f) {
  const bool found = ((dtype == dtype_of<T> && run_case<selected(Name, dtype_of<T>), T>(f)) || ...);
  return found || reject_dtype(context, Name, dtype);
}

// Calls f(Type<C>{}) for the type that a `dtype` among the types is calculated in: float for Half and
// BFloat16.
template <const char* Name, class... T, class F>
bool with_compute_dtype(KernelRuntimeContext& context, Types<T...> types, ScalarType dtype, F&& f) {
  const bool found = contains(types, dtype) &&
                     ((!is_reduced_float<T> && compute_dtype(dtype) == dtype_of<T> &&
                           run_case < !is_reduced_float<T> && calculates(Name, dtype_of<compute_t<T>>),
                       compute_t < T >> (f)) ||
                      ...);
  return found || reject_dtype(context, Name, dtype);
}

// An element in the type that it is calculated in. A byte other than 0 and 1, as view(torch.bool) can make,
// is no bool that C++ may read.
template <class T>
inline compute_t<T> load_element(const T* p) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return same_bits<float>(static_cast<uint32_t>(p->x) << 16);
  } else if constexpr (std::is_same_v<T, bool>) {
    return *reinterpret_cast<const uint8_t*>(p) != 0;
  } else {
    return static_cast<compute_t<T>>(*p);
  }
}

// The value in another type, as ATen converts: floats are cut off and, for Byte, taken modulo 256.
template <class To, class From>
inline To convert_value(From value) {
  if constexpr (is_reduced_float<From>) {
    return convert_value<To>(load_element(&value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    // To nearest even, NaN stays NaN: written without a branch so that loops vectorise.
    const float narrow = static_cast<float>(value);
    const uint32_t bits = same_bits<uint32_t>(narrow);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return BFloat16(static_cast<uint16_t>(narrow != narrow ? 0x7fc0u : rounded), BFloat16::from_bits());
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, uint8_t> && std::is_floating_point_v<From>) {
    return static_cast<uint8_t>(static_cast<int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class T, class V>
inline void store_element(T* p, V value) {
  *p = convert_value<T>(value);
}

// The Scalar in the type C.
template <class C>
inline C value_of(const Scalar& scalar) {
  if (scalar.isBoolean()) {
    return convert_value<C>(scalar.to<bool>());
  }
  if (scalar.isFloatingPoint()) {
    return convert_value<C>(scalar.to<double>());
  }
  return convert_value<C>(scalar.to<int64_t>());
}

}  // namespace lean_elements
}  // namespace opsmith
