// Between the dtypes of tensors and those that kernels calculate in. Plain loops: the compiler makes vectors
// of them.
#include "quantization_functions.h"

#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(OPSMITH_ISA_NEON)
#include <arm_neon.h>
#endif

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

template <class From, class To>
void convert(const From* x, To* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<To>(x[i]);
  }
}

// Whole vectors of them, where there is an instruction: how many elements those are.
#if defined(__F16C__)
int64_t widen_half_vectors(const uint16_t* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  return i;
}
#elif defined(OPSMITH_ISA_NEON)
int64_t widen_half_vectors(const uint16_t* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
  }
  return i;
}
#else
int64_t widen_half_vectors(const uint16_t*, float*, int64_t) {
  return 0;
}
#endif

float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

void widen_half(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = widen_half_vectors(x, y, n); i < n; ++i) {
    // The exponent is rebased by a product, which also makes subnormals right; infinity and NaN keep all its
    // bits.
    const uint32_t magnitude = static_cast<uint32_t>(x[i] & 0x7fffu) << 13;
    const uint32_t sign = static_cast<uint32_t>(x[i] & 0x8000u) << 16;
    const float finite = bits_to_float(magnitude) * 0x1p112f;
    uint32_t bits;
    std::memcpy(&bits, &finite, sizeof(bits));
    y[i] = bits_to_float(((x[i] & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : bits) | sign);
  }
}

void widen_bfloat16(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = bits_to_float(static_cast<uint32_t>(x[i]) << 16);
  }
}

#define OPSMITH_CONVERSION(name, From, To)     \
  void name(const From* x, To* y, int64_t n) { \
    convert(x, y, n);                          \
  }
OPSMITH_CONVERSIONS(OPSMITH_CONVERSION)
#undef OPSMITH_CONVERSION

}  // namespace opsmith::quantized::OPSMITH_ISA
