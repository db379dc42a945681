// The code that AVX2 and AVX-512 share: OPSMITH_MM(name) is the intrinsic for the register's width.

namespace opsmith::optimized::OPSMITH_ISA {

typedef uint32_t U __attribute__((vector_size(sizeof(F))));

OPSMITH_INLINE F splat(float x) {
  return OPSMITH_MM(set1_ps)(x);
}
OPSMITH_INLINE F zero() {
  return OPSMITH_MM(setzero_ps)();
}
OPSMITH_INLINE F load(const float* p) {
  return OPSMITH_MM(loadu_ps)(p);
}
OPSMITH_INLINE void store(float* p, F x) {
  OPSMITH_MM(storeu_ps)(p, x);
}
OPSMITH_INLINE void stream(float* p, F x) {
  OPSMITH_MM(stream_ps)(p, x);
}
OPSMITH_INLINE F fma(F a, F b, F c) {
  return OPSMITH_MM(fmadd_ps)(a, b, c);
}
// Of two operands of which one is NaN, the second, as x86 does.
OPSMITH_INLINE F min(F a, F b) {
  return OPSMITH_MM(min_ps)(a, b);
}
OPSMITH_INLINE F max(F a, F b) {
  return OPSMITH_MM(max_ps)(a, b);
}

}  // namespace opsmith::optimized::OPSMITH_ISA

#undef OPSMITH_MM
