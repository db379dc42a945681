// ScalarType: the dtypes, with ATen's numbers, and the C++ types of elements. Half, BFloat16 and complex are
// c10's, of the installed PyTorch, whose definitions are headers only.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

namespace executorch::runtime::etensor {

using c10::BFloat16;
using c10::complex;
using c10::Half;

// Types of elements that are stored and not calculated with.
#define OPSMITH_STORED(name, type)         \
  struct name {                            \
    using underlying = type;               \
    type val_;                             \
    name() = default;                      \
    explicit name(type val) : val_(val) {} \
  };
OPSMITH_STORED(qint8, int8_t)
OPSMITH_STORED(quint8, uint8_t)
OPSMITH_STORED(qint32, int32_t)
OPSMITH_STORED(quint4x2, uint8_t)
OPSMITH_STORED(quint2x4, uint8_t)
OPSMITH_STORED(bits1x8, uint8_t)
OPSMITH_STORED(bits2x4, uint8_t)
OPSMITH_STORED(bits4x2, uint8_t)
OPSMITH_STORED(bits8, uint8_t)
OPSMITH_STORED(bits16, uint16_t)
namespace unused_dtype {
OPSMITH_STORED(Float8_e5m2, uint8_t)
OPSMITH_STORED(Float8_e4m3fn, uint8_t)
OPSMITH_STORED(Float8_e5m2fnuz, uint8_t)
OPSMITH_STORED(Float8_e4m3fnuz, uint8_t)
}  // namespace unused_dtype
#undef OPSMITH_STORED

// _(the type of an element, the name of its dtype), in the order of the numbers.
#define ET_FORALL_SCALAR_TYPES(_)                                                   \
  _(uint8_t, Byte)                                                                  \
  _(int8_t, Char)                                                                   \
  _(int16_t, Short)                                                                 \
  _(int32_t, Int)                                                                   \
  _(int64_t, Long)                                                                  \
  _(::c10::Half, Half)                                                              \
  _(float, Float)                                                                   \
  _(double, Double)                                                                 \
  _(::c10::complex<::c10::Half>, ComplexHalf)                                       \
  _(::c10::complex<float>, ComplexFloat)                                            \
  _(::c10::complex<double>, ComplexDouble)                                          \
  _(bool, Bool)                                                                     \
  _(::executorch::runtime::etensor::qint8, QInt8)                                   \
  _(::executorch::runtime::etensor::quint8, QUInt8)                                 \
  _(::executorch::runtime::etensor::qint32, QInt32)                                 \
  _(::c10::BFloat16, BFloat16)                                                      \
  _(::executorch::runtime::etensor::quint4x2, QUInt4x2)                             \
  _(::executorch::runtime::etensor::quint2x4, QUInt2x4)                             \
  _(::executorch::runtime::etensor::bits1x8, Bits1x8)                               \
  _(::executorch::runtime::etensor::bits2x4, Bits2x4)                               \
  _(::executorch::runtime::etensor::bits4x2, Bits4x2)                               \
  _(::executorch::runtime::etensor::bits8, Bits8)                                   \
  _(::executorch::runtime::etensor::bits16, Bits16)                                 \
  _(::executorch::runtime::etensor::unused_dtype::Float8_e5m2, Float8_e5m2)         \
  _(::executorch::runtime::etensor::unused_dtype::Float8_e4m3fn, Float8_e4m3fn)     \
  _(::executorch::runtime::etensor::unused_dtype::Float8_e5m2fnuz, Float8_e5m2fnuz) \
  _(::executorch::runtime::etensor::unused_dtype::Float8_e4m3fnuz, Float8_e4m3fnuz) \
  _(uint16_t, UInt16)                                                               \
  _(uint32_t, UInt32)                                                               \
  _(uint64_t, UInt64)

enum class ScalarType : int8_t {
#define OPSMITH_DTYPE(type, name) name,
  ET_FORALL_SCALAR_TYPES(OPSMITH_DTYPE)
#undef OPSMITH_DTYPE
      Undefined,
  NumOptions,
};

}  // namespace executorch::runtime::etensor

namespace torch::executor {
using ::executorch::runtime::etensor::BFloat16;
using ::executorch::runtime::etensor::bits16;
using ::executorch::runtime::etensor::bits1x8;
using ::executorch::runtime::etensor::bits2x4;
using ::executorch::runtime::etensor::bits4x2;
using ::executorch::runtime::etensor::bits8;
using ::executorch::runtime::etensor::complex;
using ::executorch::runtime::etensor::Half;
using ::executorch::runtime::etensor::qint32;
using ::executorch::runtime::etensor::qint8;
using ::executorch::runtime::etensor::quint2x4;
using ::executorch::runtime::etensor::quint4x2;
using ::executorch::runtime::etensor::quint8;
using ::executorch::runtime::etensor::ScalarType;
}  // namespace torch::executor
