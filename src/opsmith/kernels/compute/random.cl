R"(
// Random numbers (philox.cl): the key is the call's, the counter the element's number. EXPRESSION makes an element of `u`, uniform in [0, 1), of `w`, uniform in (0, 1], and of numbers x and y. These have as many
// BITS as an element holds, so that neither end is rounded to the other.
typedef COMPUTED(COMPUTE) C;

KERNEL void run(BUFFER(STORED(DTYPE), out), const long count, const ulong key, const C x, const C y) {
  const long item = GLOBAL_ITEM(0);
  if (item >= count) return;
  const uint4 random = philox((ulong)item, key);
#if BITS > 32
  const ulong for_u = (((ulong)random.x << 32) | random.y) >> (64 - BITS);
  const ulong for_w = (((ulong)random.z << 32) | random.w) >> (64 - BITS);
#else
  const uint for_u = random.x >> (32 - BITS), for_w = random.y >> (32 - BITS);
#endif
  const C step = (C)1 / (C)(1UL << BITS);
  const C u = (C)for_u * step, w = (C)(for_w + 1) * step;
  STORE(DTYPE, POINTER(STORED(DTYPE), out), item, (EXPRESSION));
}
)"
