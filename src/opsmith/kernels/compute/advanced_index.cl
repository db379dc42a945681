R"(
// An item for each element of `out`. RANK and INDICES are numbers, INDEX_PARAMETERS and LOOK_UPS one entry for each index.
// Strides are in bytes, dimensions from the innermost to the outermost.
typedef struct {
  long count, indexed_size[INDICES], indexed_stride[INDICES], size[RANK], out[RANK], in[RANK], index[INDICES][RANK];
} Layout;

#define BYTES(T, pointer, offset) ((GLOBAL T*)((GLOBAL char*)(pointer) + (offset)))
#define LOOK_UP(name, k)                                                                                   \
  {                                                                                                        \
    long where = 0;                                                                                        \
    for (int d = 0; d < RANK; ++d) where += place[d] * l.index[k][d];                                      \
    const long given = *BYTES(const long, POINTER(const long, name), where);                               \
    const long at = checked(given < 0 ? given + l.indexed_size[k] : given, l.indexed_size[k], fault);       \
    valid &= at >= 0;                                                                                      \
    from += at * l.indexed_stride[k];                                                                      \
  }

KERNEL void run(const Layout l, BUFFER(STORED(DTYPE), out), BUFFER(const STORED(DTYPE), in),
                BUFFER(int, fault_buffer) INDEX_PARAMETERS) {
  long rest = GLOBAL_ITEM(0);
  if (rest >= l.count) return;
  GLOBAL int* const fault = POINTER(int, fault_buffer);
  long place[RANK];
  long to = 0, from = 0;
  for (int d = 0; d < RANK; ++d) {
    place[d] = rest % l.size[d];
    rest /= l.size[d];
    to += place[d] * l.out[d];
    from += place[d] * l.in[d];
  }
  int valid = 1;
  LOOK_UPS
  const C found = valid ? (C)LOAD(DTYPE, BYTES(const STORED(DTYPE), POINTER(const STORED(DTYPE), in), from), 0) : (C)0;
  STORE(DTYPE, BYTES(STORED(DTYPE), POINTER(STORED(DTYPE), out), to), 0, found);
}
)"
