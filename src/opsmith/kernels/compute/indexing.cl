R"(
// Rows chosen by indices. All tensors are contiguous: (outer, at, inner), of which
// `at` is what an index chooses. SELECT or ADD is defined. Where several indices choose one element, an item takes them in
// their order, so results do not depend on chance.
typedef struct { long outer, inner, in_size, out_size, indices, skipped; } Shape;

KERNEL void run(BUFFER(const STORED(DTYPE), in), BUFFER(const STORED(INDEX_DTYPE), index), BUFFER(STORED(DTYPE), out),
                BUFFER(int, fault_buffer), const Shape s, const C value) {
  const long item = GLOBAL_ITEM(0);
  GLOBAL int* const fault = POINTER(int, fault_buffer);
  GLOBAL const STORED(INDEX_DTYPE)* const chosen = POINTER(const STORED(INDEX_DTYPE), index);
  GLOBAL const STORED(DTYPE)* const from = POINTER(const STORED(DTYPE), in);
  GLOBAL STORED(DTYPE)* const to = POINTER(STORED(DTYPE), out);
#ifdef SELECT
  // out[outer][k][inner] = in[outer][index[k]][inner]; an embedding is one with outer 1
  if (item >= s.outer * s.indices * s.inner) return;
  const long inner = item % s.inner, k = item / s.inner % s.indices, outer = item / s.inner / s.indices;
  const long at = checked(chosen[k], s.in_size, fault);
  STORE(DTYPE, to, item, at < 0 ? (C)0 : (C)LOAD(DTYPE, from, (outer * s.in_size + at) * s.inner + inner));
#endif
#ifdef ADD
  // out[outer][index[k]][inner] += value * in[outer][k][inner], by an item for each outer and inner
  if (item >= s.outer * s.inner) return;
  const long inner = item % s.inner, outer = item / s.inner;
  for (long k = 0; k < s.indices; ++k) {
    if (chosen[k] == s.skipped) continue;
    const long at = checked(chosen[k], s.out_size, fault);
    if (at < 0) continue;
    const long place = (outer * s.out_size + at) * s.inner + inner;
    const C sum = (C)LOAD(DTYPE, to, place) + value * (C)LOAD(DTYPE, from, (outer * s.indices + k) * s.inner + inner);
    STORE(DTYPE, to, place, sum);
  }
#endif
}
)"
