R"(
// The lower (LOWER) or upper triangle of matrices; the rest is 0.
typedef COMPUTED(DTYPE) C;

KERNEL void run(BUFFER(const STORED(DTYPE), in), BUFFER(STORED(DTYPE), out), const long count, const long rows,
                const long columns, const long diagonal) {
  const long item = GLOBAL_ITEM(0);
  if (item >= count) return;
  const long column = item % columns, row = item / columns % rows;
#ifdef LOWER
  const int kept = column - row <= diagonal;
#else
  const int kept = column - row >= diagonal;
#endif
  STORE(DTYPE, POINTER(STORED(DTYPE), out), item, kept ? (C)LOAD(DTYPE, POINTER(const STORED(DTYPE), in), item) : (C)0);
}
)"
