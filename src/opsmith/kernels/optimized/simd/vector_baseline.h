// 4 lanes in the compiler's own vectors, for any processor. Included by vector.h alone.

namespace opsmith::optimized::OPSMITH_ISA {

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
// As in vector_avx512.h.
constexpr int kTileRows = 2;
constexpr int kTilePanels = 1;
constexpr int kDotRows = 2;

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
OPSMITH_INLINE F min(F a, F b) {
  return a < b ? a : b;
}
OPSMITH_INLINE F max(F a, F b) {
  return a > b ? a : b;
}
OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return a < b ? then : otherwise;
}
OPSMITH_INLINE F at_most(F a, F b, F then, F otherwise) {
  return a <= b ? then : otherwise;
}
OPSMITH_INLINE float sum(F x) {
  return (x[0] + x[2]) + (x[1] + x[3]);
}
OPSMITH_INLINE float max(float a, float b) {
  return a > b ? a : b;
}
OPSMITH_INLINE float max_lane(F x) {
  return max(max(x[0], x[1]), max(x[2], x[3]));
}
OPSMITH_INLINE bool are_positive_normal(F x) {
  const I are = (U)x - 0x00800000u < 0x7f000000u;
  return (are[0] & are[1] & are[2] & are[3]) != 0;
}
OPSMITH_INLINE F square_root(F x) {
#if defined(__x86_64__)
  return _mm_sqrt_ps(x);
#else
  return F{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
#endif
}
// To the nearest integer of |x| < 2^22: adding 1.5·2^23 leaves no bit for fractions.
OPSMITH_INLINE F nearest_integer(F x) {
  F rounded = x + 12582912.0f;
  // Or the compiler could take the addition back.
#if defined(__x86_64__)
  asm("" : "+x"(rounded));
#elif defined(__aarch64__)
  asm("" : "+w"(rounded));
#else
  asm("" : "+m"(rounded));
#endif
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

OPSMITH_INLINE F lanes_or(F x, int64_t n, F rest) {
  for (int64_t i = n; i < kLanes; ++i) {
    x[i] = rest[i];
  }
  return x;
}
OPSMITH_INLINE F evens(F x, F y) {
  return F{x[0], x[2], y[0], y[2]};
}
OPSMITH_INLINE F alternating_low(F x, F y) {
  return F{x[0], y[0], x[1], y[1]};
}
OPSMITH_INLINE F alternating_high(F x, F y) {
  return F{x[2], y[2], x[3], y[3]};
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

// A subnormal float16 is n·2^-24, which are the last bits of 1/2 + n·2^-24 in float32: so it is never a
// subnormal float32, and adding 1/2 rounds it to the nearest, ties to even.
OPSMITH_INLINE F load(const Float16* p) {
  const U half = __builtin_convertvector(*reinterpret_cast<const UnalignedH*>(p), U);
  const U size = half & 0x7fffu;
  const U normal = (size << 13) + (size < 0x7c00u ? U{} + 0x38000000u : U{} + 0x70000000u);
  const F subnormal = (F)(size + 0x3f000000u) - 0.5f;
  return (F)((size < 0x400u ? (U)subnormal : normal) | ((half & 0x8000u) << 16));
}
OPSMITH_INLINE void store(Float16* p, F x) {
  const U bits = (U)x, size = bits & 0x7fffffffu;
  const U rounded = (size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u) >> 13;
  const U finite = size < 0x38800000u ? (U)((F)size + 0.5f) - 0x3f000000u : rounded;
  // From 2^16 on it is infinite; below, the largest may round to it.
  const U kept = size < 0x47800000u ? finite : U{} + 0x7c00u;
  const U number = x == x ? kept : U{} + 0x7e00u;
  *reinterpret_cast<UnalignedH*>(p) = __builtin_convertvector(number | ((bits >> 16) & 0x8000u), H);
}
OPSMITH_INLINE void stream(Float16* p, F x) {
  store(p, x);
}

// There is no instruction for pairs of bfloat16.
struct Widened;
using Paired = Widened;

}  // namespace opsmith::optimized::OPSMITH_ISA
