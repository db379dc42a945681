// NEON (any AArch64): 4 lanes, and registers for twice the sums of x86's. Included by vector.h alone.

namespace opsmith::optimized::OPSMITH_ISA {

using F = float32x4_t;
using I = int32x4_t;
using U = uint32x4_t;
constexpr int64_t kLanes = 4;
// As in vector_avx512.h.
constexpr int kTileRows = 5;
constexpr int kTilePanels = 1;
constexpr int kDotRows = 4;

OPSMITH_INLINE F splat(float x) {
  return vdupq_n_f32(x);
}
OPSMITH_INLINE F zero() {
  return vdupq_n_f32(0.0f);
}
OPSMITH_INLINE F load(const float* p) {
  return vld1q_f32(p);
}
OPSMITH_INLINE void store(float* p, F x) {
  vst1q_f32(p, x);
}
OPSMITH_INLINE void stream(float* p, F x) {
  store(p, x);
}
OPSMITH_INLINE F fma(F a, F b, F c) {
  return vfmaq_f32(c, a, b);
}
OPSMITH_INLINE F less(F a, F b, F then, F otherwise) {
  return vbslq_f32(vcltq_f32(a, b), then, otherwise);
}
OPSMITH_INLINE F at_most(F a, F b, F then, F otherwise) {
  return vbslq_f32(vcleq_f32(a, b), then, otherwise);
}
// Of two operands of which one is NaN, the second, as x86 does; FMIN and FMAX give NaN.
OPSMITH_INLINE F min(F a, F b) {
  return less(a, b, a, b);
}
OPSMITH_INLINE F max(F a, F b) {
  return less(b, a, a, b);
}
OPSMITH_INLINE float sum(F x) {
  return vaddvq_f32(x);
}
OPSMITH_INLINE float max_lane(F x) {
  return vmaxvq_f32(x);
}
OPSMITH_INLINE bool are_positive_normal(F x) {
  return vmaxvq_u32((U)x - 0x00800000u) < 0x7f000000u;
}
OPSMITH_INLINE F square_root(F x) {
  return vsqrtq_f32(x);
}
OPSMITH_INLINE F nearest_integer(F x) {
  return vrndnq_f32(x);
}
OPSMITH_INLINE F power_of_two(I n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
// Two factors, since 2^n itself need be no float.
OPSMITH_INLINE F scaled(F x, F n) {
  const I whole = vcvtq_s32_f32(n);
  const I half = vshrq_n_s32(whole, 1);
  return x * power_of_two(half) * power_of_two(vsubq_s32(whole, half));
}

OPSMITH_INLINE F lanes_or(F x, int64_t n, F rest) {
  const I lanes = vcombine_s32(vcreate_s32(0x100000000), vcreate_s32(0x300000002));
  return vbslq_f32(vcltq_s32(lanes, vdupq_n_s32(static_cast<int32_t>(n))), x, rest);
}
OPSMITH_INLINE F load_some(const float* p, int64_t n) {
  switch (n) {
    case 0:
      return zero();
    case 1:
      return vld1q_lane_f32(p, zero(), 0);
    case 2:
      return vcombine_f32(vld1_f32(p), vdup_n_f32(0.0f));
    case 3:
      return vcombine_f32(vld1_f32(p), vld1_lane_f32(p + 2, vdup_n_f32(0.0f), 0));
    default:
      return load(p);
  }
}
OPSMITH_INLINE void store_some(float* p, F x, int64_t n) {
  switch (n) {
    case 0:
      return;
    case 1:
      return vst1q_lane_f32(p, x, 0);
    case 2:
      return vst1_f32(p, vget_low_f32(x));
    case 3:
      vst1_f32(p, vget_low_f32(x));
      return vst1q_lane_f32(p + 2, x, 2);
    default:
      return store(p, x);
  }
}
// Every second lane, of x and then of y.
OPSMITH_INLINE F evens(F x, F y) {
  return vuzp1q_f32(x, y);
}
// Lanes of x and y in turns: those of their lower halves, and of the upper ones.
OPSMITH_INLINE F alternating_low(F x, F y) {
  return vzip1q_f32(x, y);
}
OPSMITH_INLINE F alternating_high(F x, F y) {
  return vzip2q_f32(x, y);
}

OPSMITH_INLINE F widened(uint16x4_t x) {
  return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}
// To the nearest, ties to even.
OPSMITH_INLINE uint16x4_t narrowed(F x) {
  const U bits = vreinterpretq_u32_f32(x);
  const U odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const U rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7fc00000)), 16);
}
OPSMITH_INLINE F load(const Bfloat16* p) {
  return widened(vld1_u16(&p->bits));
}
OPSMITH_INLINE void store(Bfloat16* p, F x) {
  vst1_u16(&p->bits, narrowed(x));
}
OPSMITH_INLINE void stream(Bfloat16* p, F x) {
  store(p, x);
}
// Of widened bfloat16, which need no rounding.
OPSMITH_INLINE void store_exact(Bfloat16* p, F x) {
  vst1_u16(&p->bits, vshrn_n_u32(vreinterpretq_u32_f32(x), 16));
}

OPSMITH_INLINE F load(const Float16* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits)));
}
OPSMITH_INLINE void store(Float16* p, F x) {
  vst1_u16(&p->bits, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
OPSMITH_INLINE void stream(Float16* p, F x) {
  store(p, x);
}

// Pairs of bfloat16 are widened: what has an instruction for them rounds each product's sum to odd.
struct Widened;
using Paired = Widened;

}  // namespace opsmith::optimized::OPSMITH_ISA
