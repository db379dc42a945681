R"(
// Dropout: an item decides on four elements by the four numbers that Philox gives it (philox.cl).
typedef COMPUTED(DTYPE) C;

KERNEL void run(BUFFER(const STORED(DTYPE), in), BUFFER(STORED(DTYPE), out), BUFFER(uchar, mask), const long count,
                const ulong seed, const ulong first_block, const ulong kept_below, const C scale) {
  const long first = 4 * GLOBAL_ITEM(0);
  if (first >= count) return;
  const uint4 random = philox(first_block + (ulong)(first / 4), seed);
  for (int k = 0; k < 4 && first + k < count; ++k) {
    const uint number = k == 0 ? random.x : k == 1 ? random.y : k == 2 ? random.z : random.w;
    const int kept = number < kept_below;
    POINTER(uchar, mask)[first + k] = kept;
    const C value = LOAD(DTYPE, POINTER(const STORED(DTYPE), in), first + k);
    STORE(DTYPE, POINTER(STORED(DTYPE), out), first + k, value * (kept ? scale : (C)0));
  }
}
)"
