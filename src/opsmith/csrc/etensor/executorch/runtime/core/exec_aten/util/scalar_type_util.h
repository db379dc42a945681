// Dtypes: names, sizes, kinds, promotion, and switches over the C++ types of elements.
#pragma once

#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/platform/assert.h>

// ---- Lists: _(type, name) for each dtype. WITH puts more arguments before these; AND adds dtypes by name.

#define OPSMITH_DTYPE(name, _) \
  _(::executorch::runtime::ScalarTypeToCppType<::executorch::aten::ScalarType::name>::type, name)

#define ET_FORALL_INT_TYPES(_) \
  _(uint8_t, Byte) _(int8_t, Char) _(int16_t, Short) _(int32_t, Int) _(int64_t, Long)
#define ET_FORALL_INT_TYPES_AND(A, _) ET_FORALL_INT_TYPES(_) OPSMITH_DTYPE(A, _)
#define ET_FORALL_INT_TYPES_WITH(X, _) \
  _(X, uint8_t, Byte) _(X, int8_t, Char) _(X, int16_t, Short) _(X, int32_t, Int) _(X, int64_t, Long)
#define ET_FORALL_INT_TYPES_WITH2(X, Y, _) \
  _(X, Y, uint8_t, Byte)                   \
  _(X, Y, int8_t, Char) _(X, Y, int16_t, Short) _(X, Y, int32_t, Int) _(X, Y, int64_t, Long)

#define ET_FORALL_FLOAT_TYPES(_) _(float, Float) _(double, Double)
#define ET_FORALL_FLOAT_TYPES_AND(A, _) ET_FORALL_FLOAT_TYPES(_) OPSMITH_DTYPE(A, _)
#define ET_FORALL_FLOAT_TYPES_AND2(A, B, _) ET_FORALL_FLOAT_TYPES_AND(A, _) OPSMITH_DTYPE(B, _)
#define ET_FORALL_FLOATH_TYPES(_) ET_FORALL_FLOAT_TYPES_AND(Half, _)
#define ET_FORALL_FLOATHBF16_TYPES(_) ET_FORALL_FLOAT_TYPES_AND2(Half, BFloat16, _)
#define ET_FORALL_FLOAT_TYPES_WITH(X, _) _(X, float, Float) _(X, double, Double)
#define ET_FORALL_FLOATH_TYPES_WITH(X, _) ET_FORALL_FLOAT_TYPES_WITH(X, _) _(X, ::c10::Half, Half)
#define ET_FORALL_FLOAT_TYPES_WITH2(X, Y, _) _(X, Y, float, Float) _(X, Y, double, Double)
#define ET_FORALL_FLOATHBF16_TYPES_WITH2(X, Y, _) \
  ET_FORALL_FLOAT_TYPES_WITH2(X, Y, _) _(X, Y, ::c10::Half, Half) _(X, Y, ::c10::BFloat16, BFloat16)

#define ET_FORALL_REAL_TYPES(_) ET_FORALL_INT_TYPES(_) ET_FORALL_FLOAT_TYPES(_)
#define ET_FORALL_REAL_TYPES_AND(A, _) ET_FORALL_REAL_TYPES(_) OPSMITH_DTYPE(A, _)
#define ET_FORALL_REAL_TYPES_AND2(A, B, _) ET_FORALL_REAL_TYPES_AND(A, _) OPSMITH_DTYPE(B, _)
#define ET_FORALL_REAL_TYPES_AND3(A, B, C, _) ET_FORALL_REAL_TYPES_AND2(A, B, _) OPSMITH_DTYPE(C, _)
#define ET_FORALL_REALH_TYPES(_) ET_FORALL_REAL_TYPES_AND(Half, _)
#define ET_FORALL_REALHBF16_TYPES(_) ET_FORALL_REAL_TYPES_AND2(Half, BFloat16, _)
#define ET_FORALL_REALHBBF16_TYPES(_) ET_FORALL_REAL_TYPES_AND3(Bool, Half, BFloat16, _)
#define ET_FORALL_REAL_TYPES_WITH(X, _) ET_FORALL_INT_TYPES_WITH(X, _) ET_FORALL_FLOAT_TYPES_WITH(X, _)
#define ET_FORALL_REAL_TYPES_AND_WITH(A, X, _) \
  ET_FORALL_REAL_TYPES_WITH(X, _)              \
  _(X, ::executorch::runtime::ScalarTypeToCppType<::executorch::aten::ScalarType::A>::type, A)
#define ET_FORALL_REAL_TYPES_WITH2(X, Y, _) \
  ET_FORALL_INT_TYPES_WITH2(X, Y, _) ET_FORALL_FLOAT_TYPES_WITH2(X, Y, _)
#define ET_FORALL_REALHBF16_TYPES_WITH2(X, Y, _) \
  ET_FORALL_INT_TYPES_WITH2(X, Y, _) ET_FORALL_FLOATHBF16_TYPES_WITH2(X, Y, _)
#define ET_FORALL_REALHBBF16_TYPES_WITH2(X, Y, _) ET_FORALL_REALHBF16_TYPES_WITH2(X, Y, _) _(X, Y, bool, Bool)

#define ET_FORALL_COMPLEX_TYPES(_) \
  _(::c10::complex<float>, ComplexFloat) _(::c10::complex<double>, ComplexDouble)
#define ET_FORALL_COMPLEXH_TYPES(_) _(::c10::complex<::c10::Half>, ComplexHalf) ET_FORALL_COMPLEX_TYPES(_)
#define ET_FORALL_QINT_TYPES(_)            \
  _(::torch::executor::qint8, QInt8)       \
  _(::torch::executor::quint8, QUInt8)     \
  _(::torch::executor::qint32, QInt32)     \
  _(::torch::executor::quint4x2, QUInt4x2) \
  _(::torch::executor::quint2x4, QUInt2x4)

namespace executorch::runtime {

using etensor::ScalarType;

template <ScalarType kDtype>
struct ScalarTypeToCppType;
template <class T>
struct CppTypeToScalarType;
#define OPSMITH_NAMED(ctype, name)               \
  template <>                                    \
  struct ScalarTypeToCppType<ScalarType::name> { \
    using type = ctype;                          \
  };                                             \
  template <>                                    \
  struct CppTypeToScalarType<ctype> : std::integral_constant<ScalarType, ScalarType::name> {};
ET_FORALL_SCALAR_TYPES(OPSMITH_NAMED)
#undef OPSMITH_NAMED

inline const char* toString(ScalarType dtype) {
  switch (dtype) {
#define OPSMITH_NAME(ctype, name) \
  case ScalarType::name:          \
    return #name;
    ET_FORALL_SCALAR_TYPES(OPSMITH_NAME)
#undef OPSMITH_NAME
    case ScalarType::Undefined:
      return "Undefined";
    default:
      return "UNKNOWN_SCALAR";
  }
}

// In bytes; ends the call for what is no dtype.
inline size_t elementSize(ScalarType dtype) {
  switch (dtype) {
#define OPSMITH_SIZE(ctype, name) \
  case ScalarType::name:          \
    return sizeof(ctype);
    ET_FORALL_SCALAR_TYPES(OPSMITH_SIZE)
#undef OPSMITH_SIZE
    default:
      ET_CHECK_MSG(false, "Unknown ScalarType %" PRId8, static_cast<int8_t>(dtype));
  }
}

// ---- Kinds of dtypes

namespace internal {

template <class... Names>
constexpr bool is_one_of(ScalarType dtype, Names... names) {
  return ((dtype == names) || ...);
}

}  // namespace internal

constexpr bool isValid(ScalarType dtype) {
  return dtype >= ScalarType::Byte && dtype < ScalarType::Undefined;
}
constexpr bool isIntegralType(ScalarType dtype, bool includeBool) {
  return internal::is_one_of(dtype, ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int,
                             ScalarType::Long) ||
         (includeBool && dtype == ScalarType::Bool);
}
constexpr bool isFloatingType(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::Double, ScalarType::Float, ScalarType::Half,
                             ScalarType::BFloat16);
}
constexpr bool isComplexType(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::ComplexHalf, ScalarType::ComplexFloat,
                             ScalarType::ComplexDouble);
}
constexpr bool isRealType(ScalarType dtype) {
  return isIntegralType(dtype, false) || dtype == ScalarType::Float || dtype == ScalarType::Double;
}
constexpr bool isRealHType(ScalarType dtype) {
  return isRealType(dtype) || dtype == ScalarType::Half;
}
constexpr bool isRealHBType(ScalarType dtype) {
  return isRealHType(dtype) || dtype == ScalarType::Bool;
}
constexpr bool isRealHBF16Type(ScalarType dtype) {
  return isRealHType(dtype) || dtype == ScalarType::BFloat16;
}
constexpr bool isRealHBBF16Type(ScalarType dtype) {
  return isRealHBType(dtype) || dtype == ScalarType::BFloat16;
}
constexpr bool isQIntType(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::QInt8, ScalarType::QUInt8, ScalarType::QInt32,
                             ScalarType::QUInt4x2, ScalarType::QUInt2x4);
}
constexpr bool isBitsType(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::Bits1x8, ScalarType::Bits2x4, ScalarType::Bits4x2,
                             ScalarType::Bits8, ScalarType::Bits16);
}
constexpr bool isFloat8Type(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::Float8_e5m2, ScalarType::Float8_e4m3fn,
                             ScalarType::Float8_e5m2fnuz, ScalarType::Float8_e4m3fnuz);
}
constexpr bool isBarebonesUnsignedType(ScalarType dtype) {
  return internal::is_one_of(dtype, ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64);
}
inline bool isSignedType(ScalarType dtype) {
  ET_CHECK_MSG(isComplexType(dtype) || isRealHBBF16Type(dtype), "%s has no sign that is known",
               toString(dtype));
  return dtype != ScalarType::Byte && dtype != ScalarType::Bool;
}

template <class T>
struct is_floating_point : std::bool_constant<std::is_floating_point_v<T> || std::is_same_v<T, c10::Half> ||
                                              std::is_same_v<T, c10::BFloat16>> {};
template <class T>
struct is_reduced_floating_point
    : std::bool_constant<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>> {};
template <class T>
constexpr bool is_reduced_floating_point_v = is_reduced_floating_point<T>::value;
template <class T, bool kIncludeBool>
struct is_integral_type : std::bool_constant<isIntegralType(CppTypeToScalarType<T>::value, kIncludeBool)> {};
template <class T>
struct is_complex_type : std::bool_constant<isComplexType(CppTypeToScalarType<T>::value)> {};
template <class T>
struct is_bits_type : std::bool_constant<isBitsType(CppTypeToScalarType<T>::value)> {};
template <class T>
struct is_qint_type : std::bool_constant<isQIntType(CppTypeToScalarType<T>::value)> {};
template <class T>
struct is_float8_type : std::bool_constant<isFloat8Type(CppTypeToScalarType<T>::value)> {};
template <class T>
struct is_barebones_unsigned_type
    : std::bool_constant<isBarebonesUnsignedType(CppTypeToScalarType<T>::value)> {};

// ---- One dtype for another

constexpr ScalarType toQIntType(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Byte:
      return ScalarType::QUInt8;
    case ScalarType::Char:
      return ScalarType::QInt8;
    case ScalarType::Int:
      return ScalarType::QInt32;
    default:
      return dtype;
  }
}
constexpr ScalarType toUnderlying(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::QInt8:
      return ScalarType::Char;
    case ScalarType::QInt32:
      return ScalarType::Int;
    case ScalarType::QUInt8:
    case ScalarType::QUInt4x2:
    case ScalarType::QUInt2x4:
      return ScalarType::Byte;
    default:
      return dtype;
  }
}
constexpr bool isUnderlying(ScalarType dtype, ScalarType quantized) {
  return dtype == toUnderlying(quantized);
}
constexpr ScalarType toRealValueType(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::ComplexHalf:
      return ScalarType::Half;
    case ScalarType::ComplexFloat:
      return ScalarType::Float;
    case ScalarType::ComplexDouble:
      return ScalarType::Double;
    default:
      return dtype;
  }
}
constexpr ScalarType toComplexType(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
    case ScalarType::ComplexHalf:
      return ScalarType::ComplexHalf;
    case ScalarType::BFloat16:
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      return ScalarType::ComplexFloat;
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      return ScalarType::ComplexDouble;
    default:
      ET_CHECK_MSG(false, "Unknown Complex ScalarType for %" PRId8, static_cast<int8_t>(dtype));
  }
}

// Whether ATen casts elements of `from` to `to` where a result of the one is written to an out of the other.
constexpr bool canCast(ScalarType from, ScalarType to) {
  return (!isComplexType(from) || isComplexType(to)) &&
         (!isFloatingType(from) || !isIntegralType(to, false)) &&
         (from == ScalarType::Bool || to != ScalarType::Bool);
}
template <class From, class To>
struct can_cast
    : std::bool_constant<canCast(CppTypeToScalarType<From>::value, CppTypeToScalarType<To>::value)> {};

// Floating-point numbers become integers by way of int64_t, as in ATen.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return static_cast<To>(static_cast<int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

namespace internal {

// Wider dtypes of one kind have greater numbers, kinds themselves are hundreds apart; -1 for what has no
// promotion.
constexpr int promotion_rank(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Bool:
      return 0;
    case ScalarType::Byte:
    case ScalarType::Char:
      return 101;
    case ScalarType::Short:
      return 102;
    case ScalarType::Int:
      return 104;
    case ScalarType::Long:
      return 108;
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return 202;
    case ScalarType::Float:
      return 204;
    case ScalarType::Double:
      return 208;
    default:
      return -1;
  }
}

}  // namespace internal

// The dtype in which ATen computes with Tensors of `a` and `b`. Ends the call for quantized dtypes, bits,
// Float8 and wide unsigned ones, which promote to nothing but themselves.
constexpr ScalarType promoteTypes(ScalarType a, ScalarType b, bool half_to_float = false) {
  if (isComplexType(a) || isComplexType(b)) {
    // An integer, or a Bool, takes the other's precision.
    const ScalarType of_a = toRealValueType(a);
    const ScalarType of_b = toRealValueType(b);
    return toComplexType(promoteTypes(of_a, of_b));
  }
  ScalarType promoted = a;
  if (a != b || internal::promotion_rank(a) >= 0) {
    const int rank_a = internal::promotion_rank(a);
    const int rank_b = internal::promotion_rank(b);
    ET_CHECK_MSG(rank_a >= 0 && rank_b >= 0, "%s and %s promote to no dtype", toString(a), toString(b));
    if (a != b && rank_a == rank_b) {  // of one width, and neither holds the other's values
      promoted = rank_a == 101 ? ScalarType::Short : ScalarType::Float;
    } else {
      promoted = rank_a > rank_b ? a : b;
    }
  }
  return half_to_float && (promoted == ScalarType::Half || promoted == ScalarType::BFloat16)
             ? ScalarType::Float
             : promoted;
}

template <class A, class B, bool kHalfToFloat = false>
struct promote_types {
  using type = typename ScalarTypeToCppType<promoteTypes(CppTypeToScalarType<A>::value,
                                                         CppTypeToScalarType<B>::value, kHalfToFloat)>::type;
};

}  // namespace executorch::runtime

// ---- Switches
//
//   ET_SWITCH_REALHBF16_TYPES(self.scalar_type(), ctx, "halve.out", CTYPE, [&] {
//     halve(self.const_data_ptr<CTYPE>(), out.mutable_data_ptr<CTYPE>());
//   });
//
// calls the function with CTYPE as the type of elements; for another dtype the context fails.

#define OPSMITH_SWITCH(TYPE, CONTEXT, NAME, ...)                                                   \
  [&] {                                                                                            \
    const ::executorch::aten::ScalarType opsmith_dtype = TYPE;                                     \
    switch (opsmith_dtype) {                                                                       \
      __VA_ARGS__                                                                                  \
      default:                                                                                     \
        CONTEXT.fail(::executorch::runtime::Error::InvalidArgument);                               \
        ET_LOG(Error, "Unhandled dtype %s for %s", ::executorch::runtime::toString(opsmith_dtype), \
               static_cast<const char*>(NAME));                                                    \
    }                                                                                              \
  }()

#define OPSMITH_CASE(DTYPE, ALIAS, ...)                                                          \
  case ::executorch::aten::ScalarType::DTYPE: {                                                  \
    using ALIAS [[maybe_unused]] =                                                               \
        ::executorch::runtime::ScalarTypeToCppType<::executorch::aten::ScalarType::DTYPE>::type; \
    return __VA_ARGS__();                                                                        \
  }
#define OPSMITH_CASES_INT(ALIAS, ...)     \
  OPSMITH_CASE(Byte, ALIAS, __VA_ARGS__)  \
  OPSMITH_CASE(Char, ALIAS, __VA_ARGS__)  \
  OPSMITH_CASE(Short, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(Int, ALIAS, __VA_ARGS__) OPSMITH_CASE(Long, ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_UINT(ALIAS, ...)     \
  OPSMITH_CASE(UInt16, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(UInt32, ALIAS, __VA_ARGS__) OPSMITH_CASE(UInt64, ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_FLOAT(ALIAS, ...) \
  OPSMITH_CASE(Float, ALIAS, __VA_ARGS__) OPSMITH_CASE(Double, ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_REAL(ALIAS, ...) \
  OPSMITH_CASES_INT(ALIAS, __VA_ARGS__) OPSMITH_CASES_FLOAT(ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_COMPLEX(ALIAS, ...) \
  OPSMITH_CASE(ComplexFloat, ALIAS, __VA_ARGS__) OPSMITH_CASE(ComplexDouble, ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_QINT(ALIAS, ...)       \
  OPSMITH_CASE(QInt8, ALIAS, __VA_ARGS__)    \
  OPSMITH_CASE(QUInt8, ALIAS, __VA_ARGS__)   \
  OPSMITH_CASE(QInt32, ALIAS, __VA_ARGS__)   \
  OPSMITH_CASE(QUInt4x2, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(QUInt2x4, ALIAS, __VA_ARGS__)
#define OPSMITH_CASES_BITS(ALIAS, ...)      \
  OPSMITH_CASE(Bits1x8, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(Bits2x4, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(Bits4x2, ALIAS, __VA_ARGS__) \
  OPSMITH_CASE(Bits8, ALIAS, __VA_ARGS__)   \
  OPSMITH_CASE(Bits16, ALIAS, __VA_ARGS__)

#define ET_SWITCH_ALL_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...)                                                 \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                                        \
                 OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__) OPSMITH_CASE(Half, ALIAS, __VA_ARGS__) OPSMITH_CASE( \
                     BFloat16, ALIAS, __VA_ARGS__) OPSMITH_CASE(Bool, ALIAS, __VA_ARGS__)                    \
                     OPSMITH_CASES_COMPLEX(ALIAS, __VA_ARGS__) OPSMITH_CASE(ComplexHalf, ALIAS, __VA_ARGS__) \
                         OPSMITH_CASES_QINT(ALIAS, __VA_ARGS__) OPSMITH_CASES_BITS(ALIAS, __VA_ARGS__))

#define ET_SWITCH_INT_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASES_INT(ALIAS, __VA_ARGS__))
#define ET_SWITCH_INT_TYPES_AND(A, TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                               \
                 OPSMITH_CASES_INT(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__))

#define ET_SWITCH_FLOAT_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASES_FLOAT(ALIAS, __VA_ARGS__))
#define ET_SWITCH_FLOAT_TYPES_AND(A, TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                 \
                 OPSMITH_CASES_FLOAT(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__))
#define ET_SWITCH_FLOAT_TYPES_AND2(A, B, TYPE, CONTEXT, NAME, ALIAS, ...)                    \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                        \
                 OPSMITH_CASES_FLOAT(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(B, ALIAS, __VA_ARGS__))
#define ET_SWITCH_FLOAT_TYPES_AND3(A, B, C, TYPE, CONTEXT, NAME, ALIAS, ...)                 \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                        \
                 OPSMITH_CASES_FLOAT(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(B, ALIAS, __VA_ARGS__) OPSMITH_CASE(C, ALIAS, __VA_ARGS__))
#define ET_SWITCH_FLOATH_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_FLOAT_TYPES_AND(Half, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_FLOATHBF16_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_FLOAT_TYPES_AND2(Half, BFloat16, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_FLOATHBF16_TYPES_AND(A, TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_FLOAT_TYPES_AND3(Half, BFloat16, A, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)

#define ET_SWITCH_REAL_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__))
#define ET_SWITCH_REAL_TYPES_AND(A, TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                \
                 OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__))
#define ET_SWITCH_REAL_TYPES_AND2(A, B, TYPE, CONTEXT, NAME, ALIAS, ...)                    \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                       \
                 OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(B, ALIAS, __VA_ARGS__))
#define ET_SWITCH_REAL_TYPES_AND3(A, B, C, TYPE, CONTEXT, NAME, ALIAS, ...)                 \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                       \
                 OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__) OPSMITH_CASE(A, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(B, ALIAS, __VA_ARGS__) OPSMITH_CASE(C, ALIAS, __VA_ARGS__))
#define ET_SWITCH_REALB_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_REAL_TYPES_AND(Bool, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_REALH_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_REAL_TYPES_AND(Half, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_REALHB_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_REAL_TYPES_AND2(Half, Bool, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_REALHBF16_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_REAL_TYPES_AND2(Half, BFloat16, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_REALHBBF16_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_REAL_TYPES_AND3(Half, Bool, BFloat16, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_REALHBBF16_AND_UINT_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...)                           \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                                  \
                 OPSMITH_CASES_REAL(ALIAS, __VA_ARGS__) OPSMITH_CASE(Half, ALIAS, __VA_ARGS__)         \
                     OPSMITH_CASE(Bool, ALIAS, __VA_ARGS__) OPSMITH_CASE(BFloat16, ALIAS, __VA_ARGS__) \
                         OPSMITH_CASES_UINT(ALIAS, __VA_ARGS__))

#define ET_SWITCH_COMPLEX_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASES_COMPLEX(ALIAS, __VA_ARGS__))
#define ET_SWITCH_COMPLEXH_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                             \
                 OPSMITH_CASES_COMPLEX(ALIAS, __VA_ARGS__) OPSMITH_CASE(ComplexHalf, ALIAS, __VA_ARGS__))
#define ET_SWITCH_QINT_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASES_QINT(ALIAS, __VA_ARGS__))

// The dtypes that a Scalar may have.
#define ET_SWITCH_SCALAR_OBJ_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_THREE_TYPES(Bool, Long, Double, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_SCALAR_OBJ_REAL_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_TWO_TYPES(Long, Double, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_SCALAR_OBJ_INTB_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_TWO_TYPES(Bool, Long, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)
#define ET_SWITCH_SCALAR_OBJ_FLOATB_TYPES(TYPE, CONTEXT, NAME, ALIAS, ...) \
  ET_SWITCH_TWO_TYPES(Bool, Double, TYPE, CONTEXT, NAME, ALIAS, __VA_ARGS__)

#define ET_SWITCH_TWO_TYPES(A, B, TYPE, CONTEXT, NAME, ALIAS, ...) \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME, OPSMITH_CASE(A, ALIAS, __VA_ARGS__) OPSMITH_CASE(B, ALIAS, __VA_ARGS__))
#define ET_SWITCH_THREE_TYPES(A, B, C, TYPE, CONTEXT, NAME, ALIAS, ...)                  \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                    \
                 OPSMITH_CASE(A, ALIAS, __VA_ARGS__) OPSMITH_CASE(B, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(C, ALIAS, __VA_ARGS__))
#define ET_SWITCH_FOUR_TYPES(A, B, C, D, TYPE, CONTEXT, NAME, ALIAS, ...)                \
  OPSMITH_SWITCH(TYPE, CONTEXT, NAME,                                                    \
                 OPSMITH_CASE(A, ALIAS, __VA_ARGS__) OPSMITH_CASE(B, ALIAS, __VA_ARGS__) \
                     OPSMITH_CASE(C, ALIAS, __VA_ARGS__) OPSMITH_CASE(D, ALIAS, __VA_ARGS__))

namespace executorch::aten {
using ::executorch::runtime::elementSize;
}  // namespace executorch::aten

namespace torch::executor {
using ::executorch::runtime::can_cast;
using ::executorch::runtime::canCast;
using ::executorch::runtime::convert;
using ::executorch::runtime::CppTypeToScalarType;
using ::executorch::runtime::elementSize;
using ::executorch::runtime::is_barebones_unsigned_type;
using ::executorch::runtime::is_bits_type;
using ::executorch::runtime::is_complex_type;
using ::executorch::runtime::is_float8_type;
using ::executorch::runtime::is_floating_point;
using ::executorch::runtime::is_integral_type;
using ::executorch::runtime::is_qint_type;
using ::executorch::runtime::is_reduced_floating_point;
using ::executorch::runtime::isBitsType;
using ::executorch::runtime::isComplexType;
using ::executorch::runtime::isFloatingType;
using ::executorch::runtime::isIntegralType;
using ::executorch::runtime::isQIntType;
using ::executorch::runtime::isRealHBType;
using ::executorch::runtime::isRealHType;
using ::executorch::runtime::isRealType;
using ::executorch::runtime::isValid;
using ::executorch::runtime::promote_types;
using ::executorch::runtime::promoteTypes;
using ::executorch::runtime::ScalarTypeToCppType;
using ::executorch::runtime::toString;
}  // namespace torch::executor
