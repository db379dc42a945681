// A vector of float32 as wide as the instruction set's registers, with loads and stores that also convert
// bfloat16 and float16.
//
// Everything here lies in the namespace OPSMITH_ISA and is always inlined, so that the linker never merges
// one instruction set's code with another's. For the same reason nothing here calls the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(OPSMITH_ISA_NEON)
#include <arm_neon.h>
#endif

#include "../bfloat16.h"
#include "../float16.h"

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the undefined operand of its own AVX-512 intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define OPSMITH_ALWAYS_INLINE __attribute__((always_inline))
#define OPSMITH_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "../arch/x86/vector_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "../arch/x86/vector_avx2.h"
#elif defined(OPSMITH_ISA_NEON)
#include "../arch/arm/vector_neon.h"
#else
#include "vector_baseline.h"
#endif

namespace opsmith::optimized::OPSMITH_ISA {

// Of vectors of 16 lanes alone.
template <class Vector>
void transpose(Vector (&rows)[16]);

// ---- parts of vectors, where the instruction set has no masks for elements of T

template <class T>
OPSMITH_INLINE F load_between(const T* p, int64_t begin, int64_t end) {
  T lanes[kLanes] = {};
  for (int64_t i = begin; i < end; ++i) {
    lanes[i] = p[i];
  }
  return load(lanes);
}
template <class T>
OPSMITH_INLINE F load_some(const T* p, int64_t n) {
  return load_between(p, 0, n);
}
template <class T>
OPSMITH_INLINE void store_some(T* p, F x, int64_t n) {
  T lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < n; ++i) {
    p[i] = lanes[i];
  }
}
// The lanes of x up to `begin`, those of memory up to `end`, and zeros.
template <class T>
OPSMITH_INLINE F load_onto(F x, const T* p, int64_t begin, int64_t end) {
  return lanes_or(x, begin, load_between(p, begin, end));
}
// Half a vector from each.
template <class T>
OPSMITH_INLINE F load_halves(const T* low, const T* high) {
  return load_onto(load_some(low, kLanes / 2), high - kLanes / 2, kLanes / 2, kLanes);
}
// Of widened bfloat16, which need no rounding.
template <class T>
OPSMITH_INLINE void store_exact(T* p, F x) {
  store(p, x);
}

// ---- pairs of bfloat16: neighbours in depth, in 32 bits

// The second of each pair, and the first.
OPSMITH_INLINE F upper_bfloat16(F pairs) {
  return (F)((U)pairs & 0xffff0000u);
}
OPSMITH_INLINE F lower_bfloat16(F pairs) {
  return (F)((U)pairs << 16);
}
// Pairs of two rows' elements, which were widened to float32.
OPSMITH_INLINE F interleaved(F first, F second) {
  return (F)(((U)first >> 16) | (U)second);
}

// Products of them, in float32: sum + a₀b₀ + a₁b₁ of the halves of each lane; Paired, of the instruction set,
// is its like in an instruction. For dot products of elements of either type too, one a lane.
struct Widened {
  struct Operand {
    F first, second;
  };
  static constexpr int64_t kStep = kLanes;

  OPSMITH_INLINE Operand row(F pairs) { return {lower_bfloat16(pairs), upper_bfloat16(pairs)}; }
  OPSMITH_INLINE Operand both(uint32_t pair) {
    const uint32_t first = pair << 16, second = pair & 0xffff0000u;
    float x, y;
    __builtin_memcpy(&x, &first, sizeof x);
    __builtin_memcpy(&y, &second, sizeof y);
    return {splat(x), splat(y)};
  }
  // Rows of b one below the other; the second may be null, for zeros.
  template <int V>
  OPSMITH_INLINE void rows(const Bfloat16* first, const Bfloat16* second, Operand (&row)[V]) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = {load(first + v * kLanes), second != nullptr ? load(second + v * kLanes) : zero()};
    }
  }
  OPSMITH_INLINE F add(F sum, Operand a, Operand b) {
    return fma(a.second, b.second, fma(a.first, b.first, sum));
  }

  template <class T>
  OPSMITH_INLINE F load_step(const T* p) {
    return load(p);
  }
  template <class T>
  OPSMITH_INLINE F load_part(const T* p, int64_t n) {
    return load_some(p, n);
  }
  OPSMITH_INLINE F add(F sum, F a, F b) { return fma(a, b, sum); }
};

// ---- scalars

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

OPSMITH_INLINE float widened_one(Float16 x) {
#if defined(__F16C__)
  return _cvtsh_ss(x.bits);
#else
  return load_some(&x, 1)[0];
#endif
}

// Streamed stores must be seen by other threads before the kernel ends.
OPSMITH_INLINE void end_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace opsmith::optimized::OPSMITH_ISA
