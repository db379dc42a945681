R"(
// Random numbers by Philox 4x32 with ten rounds (Salmon et al., 2011): the key is the call's, the counter the element's
// number. EXPRESSION makes an element of `u`, uniform in [0, 1), of `w`, uniform in (0, 1], and of numbers x and y. These have as many
// BITS as an element holds, so that neither end is rounded to the other.
typedef COMPUTED(COMPUTE) C;

DEVICE inline uint4 philox(ulong counter, ulong key) {
  uint c0 = (uint)counter, c1 = (uint)(counter >> 32), c2 = 0, c3 = 0;
  uint k0 = (uint)key, k1 = (uint)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint high0 = MULTIPLY_HIGH(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint high1 = MULTIPLY_HIGH(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint4 numbers;
  numbers.x = c0;
  numbers.y = c1;
  numbers.z = c2;
  numbers.w = c3;
  return numbers;
}

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
