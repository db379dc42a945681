// The functions of simd/*.cpp, in the namespace OPSMITH_ISA; ../quantization_functions.h has them of each
// instruction set. No guard, since it is included once for each of them.
//
// All are plain functions of pointers and counts: shapes, dtypes, threads and errors are the callers'.
// Source and result may not overlap. Values are rounded half to even, NaN becomes the integer that the
// processor makes of it, as in ATen.

#include <cstdint>

#include "../grouped_matmul.h"
#include "../int8_matmul.h"
#include "../requantized_matmul.h"

namespace opsmith::quantized::OPSMITH_ISA {

// ---- conversion.cpp

void widen_half(const uint16_t* x, float* y, int64_t n);
void widen_bfloat16(const uint16_t* x, float* y, int64_t n);
// Narrowing keeps the low bits, for signed and unsigned results.
#define OPSMITH_CONVERSIONS(each)                                                                           \
  each(widen_int8, int8_t, int32_t) each(widen_uint8, uint8_t, int32_t) each(widen_int16, int16_t, int32_t) \
      each(widen_uint16, uint16_t, int32_t) each(narrow_8, int32_t, uint8_t)                                \
          each(narrow_16, int32_t, uint16_t)
#define OPSMITH_CONVERSION(name, From, To) void name(const From* x, To* y, int64_t n);
OPSMITH_CONVERSIONS(OPSMITH_CONVERSION)
#undef OPSMITH_CONVERSION

// ---- affine.cpp: C is the type that is calculated in

#define OPSMITH_AFFINE(C, suffix)                                                                            \
  /* y = clamp(round(x · inverse) + zero, low, high) */                                                      \
  void quantize_##suffix(const float* x, int32_t* y, int64_t n, C inverse, C zero, C low, C high);           \
  /* The same with an inverse and a zero for each element. */                                                \
  void quantize_each_##suffix(const float* x, int32_t* y, int64_t n, const C* inverse, const C* zero, C low, \
                              C high);                                                                       \
  /* y = clamp(round(x · inverse + zero), low, high), rounded after the product too */                       \
  void quantize_shifted_##suffix(const float* x, int32_t* y, int64_t n, C inverse, C zero, C low, C high);   \
  /* y = (x - zero) · scale */                                                                               \
  void dequantize_##suffix(const int32_t* x, C* y, int64_t n, C zero, C scale);                              \
  void dequantize_each_##suffix(const int32_t* x, C* y, int64_t n, const C* zero, const C* scale);
OPSMITH_AFFINE(float, float)
OPSMITH_AFFINE(double, double)
#undef OPSMITH_AFFINE
// The lowest byte of what quantize_float gives, whether it stands for a signed or an unsigned one.
void quantize_to_bytes(const float* x, uint8_t* y, int64_t n, float inverse, float zero, float low,
                       float high);

// ---- extrema.cpp: whether there is a NaN; least and greatest are lowered and raised by the others

bool extrema(const float* x, int64_t n, float* least, float* greatest);

// ---- int8_matmul.cpp

// The columns of the result from `begin` to `end`.
void int8_matmul(const Int8Product& product, int64_t begin, int64_t end);
// Whether that reads Int8Product::shifted.
bool needs_shifted(const Int8Product& product);
// All rows of a panel, kPanel columns from `begin` on, which is packed into `memory` of ⌈k / 4⌉ · 4 · kPanel
// bytes; the input's sign bit is 0. And whether that pays.
void int8_panel(const Int8Product& product, int64_t begin, int8_t* memory);
bool packs_panels(const Int8Product& product);

// ---- grouped_matmul.cpp

// A row of `k` floats as bytes of its own scale and zero point, by torchao's rule for asymmetric int8.
void quantize_row(const float* x, int64_t k, int64_t groups, int64_t steps, QuantizedRow& row);
// The panels of the result from `begin` to `end`.
void grouped_matmul(const GroupedProduct& product, int64_t begin, int64_t end);

// ---- requantized_matmul.cpp

// The panels of the result from `begin` to `end`.
void requantized_matmul(const RequantizedProduct& product, int64_t begin, int64_t end);
// The input's rows for the pixels from `begin` to `end` of the result, each filled up to whole steps.
void gather_windows(const Int8Windows& windows, int64_t begin, int64_t end, uint8_t* to);
// Signed bytes as unsigned, by their sign bit; unsigned ones as they are.
void to_unsigned(const uint8_t* from, uint8_t* to, int64_t n, uint8_t sign_bit);
void depthwise_pixel(const DepthwisePixel& pixel);
void add_int8(const uint8_t* a, const uint8_t* b, uint8_t* out, int64_t n, const Int8Addition& sum);
// `greatest`, as unsigned, is raised by others.
void max_int8(const uint8_t* x, uint8_t* greatest, int64_t n, uint8_t sign_bit);

}  // namespace opsmith::quantized::OPSMITH_ISA
