// AVX2 and FMA (x86-64-v3): 8 lanes. Included by vector.h alone.

namespace opsmith::optimized::OPSMITH_ISA {

using F = __m256;
using I = __m256i;
constexpr int64_t kLanes = 8;
// As in vector_avx512.h.
constexpr int kTileRows = 6;
constexpr int kTilePanels = 1;
constexpr int kDotRows = 2;

}  // namespace opsmith::optimized::OPSMITH_ISA

#define OPSMITH_MM(name) _mm256_##name
#include "vector_x86.h"

namespace opsmith::optimized::OPSMITH_ISA {

OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
OPSMITH_INLINE F at_most(F a, F b, F then, F otherwise) {
  return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LE_OQ));
}
OPSMITH_INLINE float sum(F x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
OPSMITH_INLINE float max_lane(F x) {
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
OPSMITH_INLINE bool are_positive_normal(F x) {
  // Compared as signed numbers.
  const I below =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(0xff000000u)), (I)((U)x + 0x7f800000u));
  return _mm256_movemask_epi8(below) == -1;
}
OPSMITH_INLINE F square_root(F x) {
  return _mm256_sqrt_ps(x);
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
OPSMITH_INLINE F alternating_low(F x, F y) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y), 0x20);
}
OPSMITH_INLINE F alternating_high(F x, F y) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y), 0x31);
}

OPSMITH_INLINE F widened(__m128i x, Bfloat16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
OPSMITH_INLINE __m128i narrowed(F x, Bfloat16) {
  const I bits = _mm256_castps_si256(x);
  const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const I sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const F kept =
      _mm256_blendv_ps(_mm256_castsi256_ps(sum), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                       _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const I high = _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
OPSMITH_INLINE F widened(__m128i x, Float16) {
  return _mm256_cvtph_ps(x);
}
OPSMITH_INLINE __m128i narrowed(F x, Float16) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
template <class T>
OPSMITH_INLINE F load(const T* p) {
  return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), T{});
}
template <class T>
OPSMITH_INLINE void store(T* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrowed(x, T{}));
}
template <class T>
OPSMITH_INLINE void stream(T* p, F x) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrowed(x, T{}));
}

// There is no instruction for pairs of bfloat16.
struct Widened;
using Paired = Widened;

}  // namespace opsmith::optimized::OPSMITH_ISA
