// A vector of float32 as wide as the instruction set's registers, with loads and stores that also convert
// bfloat16.
//
// Everything here lies in the namespace OPSMITH_ISA and is always inlined, so that the linker never merges
// one instruction set's code with another's. For the same reason nothing here calls the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../bfloat16.h"

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define OPSMITH_ALWAYS_INLINE __attribute__((always_inline))
#define OPSMITH_INLINE static inline __attribute__((always_inline))

namespace opsmith::optimized::OPSMITH_ISA {

// ---- what differs: registers of 16, 8 or 4 lanes

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

using F = __m512;
using I = __m512i;
constexpr int64_t kLanes = 16;

OPSMITH_INLINE F splat(float x) {
  return _mm512_set1_ps(x);
}
OPSMITH_INLINE F zero() {
  return _mm512_setzero_ps();
}
OPSMITH_INLINE F load(const float* p) {
  return _mm512_loadu_ps(p);
}
OPSMITH_INLINE void store(float* p, F x) {
  _mm512_storeu_ps(p, x);
}
OPSMITH_INLINE void stream(float* p, F x) {
  _mm512_stream_ps(p, x);
}
OPSMITH_INLINE F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
// Of two operands of which one is NaN, the second, as x86 does.
OPSMITH_INLINE F smaller(F a, F b) {
  return _mm512_min_ps(a, b);
}
OPSMITH_INLINE F larger(F a, F b) {
  return _mm512_max_ps(a, b);
}
OPSMITH_INLINE F square_root(F x) {
  return _mm512_sqrt_ps(x);
}
OPSMITH_INLINE F absolute(F x) {
  return _mm512_abs_ps(x);
}
OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
}
OPSMITH_INLINE bool any_unordered(F x) {
  return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
}
OPSMITH_INLINE float sum(F x) {
  return _mm512_reduce_add_ps(x);
}
OPSMITH_INLINE float largest(F x) {
  return _mm512_reduce_max_ps(x);
}
// x·2^n of an integral n.
OPSMITH_INLINE F scaled(F x, F n) {
  return _mm512_scalef_ps(x, n);
}
OPSMITH_INLINE F nearest_integer(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

OPSMITH_INLINE __mmask16 first(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
OPSMITH_INLINE F load_some(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}
OPSMITH_INLINE void store_some(float* p, F x, int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), x);
}
OPSMITH_INLINE F lanes_or(F x, int64_t n, F rest) {
  return _mm512_mask_blend_ps(first(n), rest, x);
}
// Lanes from `begin` up to `end`, of which alone memory is read; the others are 0.
OPSMITH_INLINE F load_between(const float* p, int64_t begin, int64_t end) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(first(end) & ~first(begin)), p);
}
// Every second lane, of x and then of y.
OPSMITH_INLINE F evens(F x, F y) {
  const I lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(x, lanes, y);
}

// Of pairs of bfloat16, the second of each, and the first.
OPSMITH_INLINE F upper_bfloat16(F pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}
OPSMITH_INLINE F lower_bfloat16(F pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
OPSMITH_INLINE F widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
// To the nearest, ties to even; VCVTNEPS2BF16 would flush subnormal numbers.
OPSMITH_INLINE __m256i narrowed(F x) {
  const I bits = _mm512_castps_si512(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const I kept =
      _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
OPSMITH_INLINE F load(const Bfloat16* p) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
OPSMITH_INLINE void store(Bfloat16* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(x));
}
OPSMITH_INLINE void stream(Bfloat16* p, F x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrowed(x));
}
OPSMITH_INLINE F load_some(const Bfloat16* p, int64_t n) {
  return widened(_mm256_maskz_loadu_epi16(first(n), p));
}
OPSMITH_INLINE void store_some(Bfloat16* p, F x, int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), narrowed(x));
}
OPSMITH_INLINE F load_between(const Bfloat16* p, int64_t begin, int64_t end) {
  return widened(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(first(end) & ~first(begin)), p));
}

#elif defined(__AVX2__) && defined(__FMA__)

using F = __m256;
using I = __m256i;
constexpr int64_t kLanes = 8;

OPSMITH_INLINE F splat(float x) {
  return _mm256_set1_ps(x);
}
OPSMITH_INLINE F zero() {
  return _mm256_setzero_ps();
}
OPSMITH_INLINE F load(const float* p) {
  return _mm256_loadu_ps(p);
}
OPSMITH_INLINE void store(float* p, F x) {
  _mm256_storeu_ps(p, x);
}
OPSMITH_INLINE void stream(float* p, F x) {
  _mm256_stream_ps(p, x);
}
OPSMITH_INLINE F fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}
OPSMITH_INLINE F smaller(F a, F b) {
  return _mm256_min_ps(a, b);
}
OPSMITH_INLINE F larger(F a, F b) {
  return _mm256_max_ps(a, b);
}
OPSMITH_INLINE F square_root(F x) {
  return _mm256_sqrt_ps(x);
}
OPSMITH_INLINE F absolute(F x) {
  return _mm256_andnot_ps(splat(-0.0f), x);
}
OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
OPSMITH_INLINE bool any_unordered(F x) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}
OPSMITH_INLINE float sum(F x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
OPSMITH_INLINE float largest(F x) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
OPSMITH_INLINE F power_of_two(I n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// Two factors, since 2^n itself need be no float.
OPSMITH_INLINE F scaled(F x, F n) {
  const I whole = _mm256_cvtps_epi32(n);
  const I half = _mm256_srai_epi32(whole, 1);
  return x * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
}
OPSMITH_INLINE F nearest_integer(F x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

OPSMITH_INLINE I first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OPSMITH_INLINE F load_some(const float* p, int64_t n) {
  return _mm256_maskload_ps(p, first(n));
}
OPSMITH_INLINE void store_some(float* p, F x, int64_t n) {
  _mm256_maskstore_ps(p, first(n), x);
}
OPSMITH_INLINE F lanes_or(F x, int64_t n, F rest) {
  return _mm256_blendv_ps(rest, x, _mm256_castsi256_ps(first(n)));
}
OPSMITH_INLINE F load_between(const float* p, int64_t begin, int64_t end) {
  return _mm256_maskload_ps(p, _mm256_andnot_si256(first(begin), first(end)));
}
OPSMITH_INLINE F evens(F x, F y) {
  const __m256d halves = _mm256_castps_pd(_mm256_shuffle_ps(x, y, _MM_SHUFFLE(2, 0, 2, 0)));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(halves, _MM_SHUFFLE(3, 1, 2, 0)));
}

OPSMITH_INLINE F upper_bfloat16(F pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs), _mm256_set1_epi32(-65536)));
}
OPSMITH_INLINE F lower_bfloat16(F pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
OPSMITH_INLINE F widened(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
OPSMITH_INLINE __m128i narrowed(F x) {
  const I bits = _mm256_castps_si256(x);
  const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const I sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const F kept =
      _mm256_blendv_ps(_mm256_castsi256_ps(sum), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                       _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const I high = _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
OPSMITH_INLINE F load(const Bfloat16* p) {
  return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
OPSMITH_INLINE void store(Bfloat16* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrowed(x));
}
OPSMITH_INLINE void stream(Bfloat16* p, F x) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrowed(x));
}

#else

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;

typedef float UnalignedF __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t U __attribute__((vector_size(16)));
typedef uint16_t H __attribute__((vector_size(8)));
typedef uint16_t UnalignedH __attribute__((vector_size(8), aligned(2), may_alias));

OPSMITH_INLINE F splat(float x) {
  return F{x, x, x, x};
}
OPSMITH_INLINE F zero() {
  return F{};
}
OPSMITH_INLINE F load(const float* p) {
  return *reinterpret_cast<const UnalignedF*>(p);
}
OPSMITH_INLINE void store(float* p, F x) {
  *reinterpret_cast<UnalignedF*>(p) = x;
}
OPSMITH_INLINE void stream(float* p, F x) {
  store(p, x);
}
OPSMITH_INLINE F fma(F a, F b, F c) {
  return a * b + c;
}
OPSMITH_INLINE F smaller(F a, F b) {
  return a < b ? a : b;
}
OPSMITH_INLINE F larger(F a, F b) {
  return a > b ? a : b;
}
OPSMITH_INLINE F square_root(F x) {
  return F{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
}
OPSMITH_INLINE F absolute(F x) {
  return (F)((U)x & 0x7fffffffu);
}
OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return a < b ? then : otherwise;
}
OPSMITH_INLINE bool any_unordered(F x) {
  const I unordered = x != x;
  return (unordered[0] | unordered[1] | unordered[2] | unordered[3]) != 0;
}
OPSMITH_INLINE float sum(F x) {
  return (x[0] + x[2]) + (x[1] + x[3]);
}
OPSMITH_INLINE float larger_of(float a, float b) {
  return a > b ? a : b;
}
OPSMITH_INLINE float largest(F x) {
  return larger_of(larger_of(x[0], x[1]), larger_of(x[2], x[3]));
}
// To the nearest integer of |x| < 2^22: adding 1.5·2^23 leaves no bit for fractions.
OPSMITH_INLINE F nearest_integer(F x) {
  F rounded = x + 12582912.0f;
  asm("" : "+x"(rounded));  // or the compiler could take the addition back
  return rounded - 12582912.0f;
}
OPSMITH_INLINE F power_of_two(I n) {
  return (F)((n + 127) << 23);
}
OPSMITH_INLINE F scaled(F x, F n) {
  const I whole = __builtin_convertvector(n, I);
  const I half = whole >> 1;
  return x * power_of_two(half) * power_of_two(whole - half);
}

OPSMITH_INLINE F load_some(const float* p, int64_t n) {
  F x{};
  for (int64_t i = 0; i < n; ++i) {
    x[i] = p[i];
  }
  return x;
}
OPSMITH_INLINE void store_some(float* p, F x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    p[i] = x[i];
  }
}
OPSMITH_INLINE F lanes_or(F x, int64_t n, F rest) {
  for (int64_t i = n; i < kLanes; ++i) {
    x[i] = rest[i];
  }
  return x;
}
OPSMITH_INLINE F load_between(const float* p, int64_t begin, int64_t end) {
  F x{};
  for (int64_t i = begin; i < end; ++i) {
    x[i] = p[i];
  }
  return x;
}
OPSMITH_INLINE F evens(F x, F y) {
  return F{x[0], x[2], y[0], y[2]};
}

OPSMITH_INLINE F upper_bfloat16(F pairs) {
  return (F)((U)pairs & 0xffff0000u);
}
OPSMITH_INLINE F lower_bfloat16(F pairs) {
  return (F)((U)pairs << 16);
}
OPSMITH_INLINE F widened(H x) {
  return (F)(__builtin_convertvector(x, U) << 16);
}
OPSMITH_INLINE H narrowed(F x) {
  const U bits = (U)x;
  const U rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const U kept = x == x ? rounded : U{} + 0x7fc00000u;
  return __builtin_convertvector(kept >> 16, H);
}
OPSMITH_INLINE F load(const Bfloat16* p) {
  return widened(*reinterpret_cast<const UnalignedH*>(p));
}
OPSMITH_INLINE void store(Bfloat16* p, F x) {
  *reinterpret_cast<UnalignedH*>(p) = narrowed(x);
}
OPSMITH_INLINE void stream(Bfloat16* p, F x) {
  store(p, x);
}

#endif

#if !defined(__AVX512F__)
// The first n of a vector's lanes; the rest is 0.
OPSMITH_INLINE F load_some(const Bfloat16* p, int64_t n) {
  Bfloat16 lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    lanes[i] = p[i];
  }
  return load(lanes);
}
OPSMITH_INLINE F load_between(const Bfloat16* p, int64_t begin, int64_t end) {
  Bfloat16 lanes[kLanes] = {};
  for (int64_t i = begin; i < end; ++i) {
    lanes[i] = p[i];
  }
  return load(lanes);
}
OPSMITH_INLINE void store_some(Bfloat16* p, F x, int64_t n) {
  Bfloat16 lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < n; ++i) {
    p[i] = lanes[i];
  }
}
#endif

// ---- what follows from it

// Pairs of two rows' elements, which were widened to float32.
OPSMITH_INLINE F interleaved(F first, F second) {
#if defined(__AVX512F__)
  return _mm512_castsi512_ps(
      _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second)));
#elif defined(__AVX2__)
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(first), 16), _mm256_castps_si256(second)));
#else
  return (F)(((U)first >> 16) | (U)second);
#endif
}

OPSMITH_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

OPSMITH_INLINE float widened_one(float x) {
  return x;
}
OPSMITH_INLINE float widened_one(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// Streamed stores must be seen by other threads before the kernel ends.
OPSMITH_INLINE void end_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace opsmith::optimized::OPSMITH_ISA
