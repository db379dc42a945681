// AVX-512 (x86-64-v4): 16 lanes, and masks for parts of them. Included by vector.h alone.

namespace opsmith::optimized::OPSMITH_ISA {

using F = __m512;
using I = __m512i;
constexpr int64_t kLanes = 16;
// Rows and panels of a product's tile, whose sums, with a row of b and a broadcast of a, fill the registers;
// rows of a tile of dot products.
constexpr int kTileRows = 6;
constexpr int kTilePanels = 4;
constexpr int kDotRows = 4;

}  // namespace opsmith::optimized::OPSMITH_ISA

#define OPSMITH_MM(name) _mm512_##name
#include "vector_x86.h"

namespace opsmith::optimized::OPSMITH_ISA {

OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
}
OPSMITH_INLINE F at_most(F a, F b, F then, F otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LE_OQ), otherwise, then);
}
OPSMITH_INLINE float sum(F x) {
  return _mm512_reduce_add_ps(x);
}
OPSMITH_INLINE float max_lane(F x) {
  return _mm512_reduce_max_ps(x);
}
// x·2^n of an integral n.
OPSMITH_INLINE F scaled(F x, F n) {
  return _mm512_scalef_ps(x, n);
}
// Whether all lanes are positive, normal and finite.
OPSMITH_INLINE bool are_positive_normal(F x) {
  return _mm512_fpclass_ps_mask(x, 0xff) == 0;
}
// By Markstein's iteration, which VSQRTPS of 512 bits takes twice as long for. It was compared with that for
// all float32: the same bits. What is not far from both ends of the range is left to it.
OPSMITH_INLINE F square_root(F x) {
  const F half = splat(0.5f), reciprocal = _mm512_rsqrt14_ps(x);
  F root = x * reciprocal, slope = reciprocal * half;
  const F correction = _mm512_fnmadd_ps(root, slope, half);
  root = fma(root, correction, root);
  root = fma(_mm512_fnmadd_ps(root, root, x), fma(slope, correction, slope), root);
  const __mmask16 is_left = _mm512_cmpge_epu32_mask((I)((U)x - 0x0d000000u), _mm512_set1_epi32(0x72800000));
  return is_left == 0 ? root : _mm512_mask_sqrt_ps(root, is_left, x);
}
OPSMITH_INLINE F nearest_integer(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Lane j of row i becomes lane i of row j.
OPSMITH_INLINE void transpose(F (&rows)[16]) {
  F pairs[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  // Of rows i to i + 3, the columns m, m + 4, m + 8 and m + 12 in fours[i + m].
  F fours[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512d upper = (__m512d)pairs[i + half], lower = (__m512d)pairs[i + 2 + half];
      fours[i + 2 * half] = (F)_mm512_unpacklo_pd(upper, lower);
      fours[i + 2 * half + 1] = (F)_mm512_unpackhi_pd(upper, lower);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    const F even_top = _mm512_shuffle_f32x4(fours[m], fours[4 + m], 0x88),
            odd_top = _mm512_shuffle_f32x4(fours[m], fours[4 + m], 0xdd),
            even_end = _mm512_shuffle_f32x4(fours[8 + m], fours[12 + m], 0x88),
            odd_end = _mm512_shuffle_f32x4(fours[8 + m], fours[12 + m], 0xdd);
    rows[m] = _mm512_shuffle_f32x4(even_top, even_end, 0x88);
    rows[4 + m] = _mm512_shuffle_f32x4(odd_top, odd_end, 0x88);
    rows[8 + m] = _mm512_shuffle_f32x4(even_top, even_end, 0xdd);
    rows[12 + m] = _mm512_shuffle_f32x4(odd_top, odd_end, 0xdd);
  }
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
// The lanes of x, but those between the bounds from memory.
OPSMITH_INLINE F load_onto(F x, const float* p, int64_t begin, int64_t end) {
  return _mm512_mask_loadu_ps(x, static_cast<__mmask16>(first(end) & ~first(begin)), p);
}
OPSMITH_INLINE F load_halves(const float* low, const float* high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1);
}
// Every second lane, of x and then of y.
OPSMITH_INLINE F evens(F x, F y) {
  const I lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(x, lanes, y);
}
// Lanes of x and y in turns: those of their lower halves, and of the upper ones.
OPSMITH_INLINE F alternating_low(F x, F y) {
  const I lanes = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return _mm512_permutex2var_ps(x, lanes, y);
}
OPSMITH_INLINE F alternating_high(F x, F y) {
  const I lanes = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return _mm512_permutex2var_ps(x, lanes, y);
}

OPSMITH_INLINE F widened(__m256i x, Bfloat16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
// To the nearest, ties to even; VCVTNEPS2BF16 would flush subnormal numbers.
OPSMITH_INLINE __m256i narrowed(F x, Bfloat16) {
  const I bits = _mm512_castps_si512(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const I kept =
      _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
OPSMITH_INLINE F widened(__m256i x, Float16) {
  return _mm512_cvtph_ps(x);
}
OPSMITH_INLINE __m256i narrowed(F x, Float16) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
template <class T>
OPSMITH_INLINE F load(const T* p) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), T{});
}
template <class T>
OPSMITH_INLINE void store(T* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrowed(x, T{}));
}
template <class T>
OPSMITH_INLINE void stream(T* p, F x) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrowed(x, T{}));
}
OPSMITH_INLINE F load_some(const Bfloat16* p, int64_t n) {
  return widened(_mm256_maskz_loadu_epi16(first(n), p), Bfloat16{});
}
OPSMITH_INLINE void store_some(Bfloat16* p, F x, int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), narrowed(x, Bfloat16{}));
}
OPSMITH_INLINE F load_some(const Float16* p, int64_t n) {
  return widened(_mm256_maskz_loadu_epi16(first(n), p), Float16{});
}
OPSMITH_INLINE void store_some(Float16* p, F x, int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), narrowed(x, Float16{}));
}
// Of widened bfloat16, which need no rounding.
OPSMITH_INLINE void store_exact(Bfloat16* p, F x) {
  const I upper = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(upper));
}
OPSMITH_INLINE F load_between(const Bfloat16* p, int64_t begin, int64_t end) {
  return widened(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(first(end) & ~first(begin)), p), Bfloat16{});
}

// Products of bfloat16 in pairs (matmul.cpp), where the processor has VDPBF16PS: subnormal operands count as
// 0.
struct Paired {
  using Operand = F;
  static constexpr int64_t kStep = 2 * kLanes;

  OPSMITH_INLINE F row(F pairs) { return pairs; }
  OPSMITH_INLINE F both(uint32_t pair) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair)));
  }
  // Rows of b one below the other, put side by side.
  template <int V>
  OPSMITH_INLINE void rows(const Bfloat16* first, const Bfloat16* second, F (&row)[V]) {
    const U lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const U low = lanes * 0x10001u + 0x200000u, high = low + 0x100010u;
#pragma GCC unroll 8
    for (int v = 0; v < V; v += 2) {
      const I x = _mm512_loadu_si512(first + v * kLanes);
      const I y = second != nullptr ? _mm512_loadu_si512(second + v * kLanes) : _mm512_setzero_si512();
      row[v] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, (I)low, y));
      row[v + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, (I)high, y));
    }
  }
  // In assembly, so that what calls it needs no option of the compiler's that x86-64-v4 has not.
  OPSMITH_INLINE F add(F sum, F a, F b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }

  OPSMITH_INLINE F load_step(const Bfloat16* p) { return load(reinterpret_cast<const float*>(p)); }
  // The first n of the pairs' elements, n below 32, and zeros.
  OPSMITH_INLINE F load_part(const Bfloat16* p, int64_t n) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((__mmask32{1} << n) - 1, p));
  }
};

}  // namespace opsmith::optimized::OPSMITH_ISA
