R"(
// Sums up each line of `length` elements, which lie `inner` apart. IN, OUT and SUMMED, that of the sum, are dtypes.
typedef COMPUTED(SUMMED) C;

KERNEL void run(BUFFER(const STORED(IN), in), BUFFER(STORED(OUT), out), const long lines, const long length,
                const long inner) {
  const long line = GLOBAL_ITEM(0);
  if (line >= lines) return;
  const long start = line / inner * length * inner + line % inner;
  C sum = 0;
  for (long k = 0; k < length; ++k) {
    sum += (C)LOAD(IN, POINTER(const STORED(IN), in), start + k * inner);
    STORE(OUT, POINTER(STORED(OUT), out), start + k * inner, (COMPUTED(OUT))sum);
  }
}
)"
