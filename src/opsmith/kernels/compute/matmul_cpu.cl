R"(
// out = alpha * a b + beta * addend for matrices that lie in any way, one tile of `out` for each group, which has one
// item: a CPU runs a group on one of its cores, and tiles packed into private memory stay in the core's cache. DTYPE and
// OUT are defined; A_BY_ROWS, B_BY_ROWS and B_BY_COLUMNS where rows or columns are dense, which compilers then pack in vectors.
typedef COMPUTED(DTYPE) C;
#define V JOIN(COMPUTED(DTYPE), 16)
#define MT 64
#define NT 128
#define KT 128
#define MR 4
#define NR 16
#ifdef A_BY_ROWS
#define A_STEP 1
#else
#define A_STEP shape.a.column
#endif
#ifdef B_BY_ROWS
#define B_STEP 1
#else
#define B_STEP shape.b.column
#endif

typedef struct { long batch, row, column; } Strides;
typedef struct { long m, n, k; Strides a, b, addend, out; } Shape;

KERNEL void run(BUFFER(const STORED(DTYPE), a), BUFFER(const STORED(DTYPE), b), BUFFER(const STORED(DTYPE), addend),
                BUFFER(STORED(OUT), out), const Shape shape, const C alpha, const C beta) {
  GLOBAL const STORED(DTYPE)* pa = POINTER(const STORED(DTYPE), a) + GROUP(2) * shape.a.batch;
  GLOBAL const STORED(DTYPE)* pb = POINTER(const STORED(DTYPE), b) + GROUP(2) * shape.b.batch;
  const long m0 = GROUP(1) * MT, n0 = GROUP(0) * NT;
  const int rows = (int)min((long)MT, shape.m - m0), columns = (int)min((long)NT, shape.n - n0);
  // Of small matrices only so much is packed and computed as there is, in whole panels.
  const int a_panels = (rows + MR - 1) / MR, b_panels = (columns + NR - 1) / NR;
  C packed_a[KT * MT];
  C packed_b[KT * NT];
  C sums[MT * NT];
  for (int i = 0; i < a_panels * MR * NT; ++i) sums[i] = 0;
  for (long k0 = 0; k0 < shape.k; k0 += KT) {
    const int depth = (int)min((long)KT, shape.k - k0);
    for (int m = 0; m < a_panels * MR; ++m) {
      C* const to = packed_a + (m / MR) * KT * MR + m % MR;
      if (m < rows) {
        GLOBAL const STORED(DTYPE)* const from = pa + (m0 + m) * shape.a.row + k0 * A_STEP;
        for (int k = 0; k < depth; ++k) to[k * MR] = (C)LOAD(DTYPE, from, k * A_STEP);
      } else {
        for (int k = 0; k < depth; ++k) to[k * MR] = 0;
      }
    }
    for (int ni = 0; ni < b_panels; ++ni) {
      const int width = min(NR, columns - ni * NR);
#ifdef B_BY_COLUMNS
      for (int n = 0; n < NR; ++n) {
        C* const to = packed_b + ni * KT * NR + n;
        GLOBAL const STORED(DTYPE)* const from = pb + k0 + (n0 + ni * NR + n) * shape.b.column;
        if (n < width) {
          for (int k = 0; k < depth; ++k) to[k * NR] = (C)LOAD(DTYPE, from, k);
        } else {
          for (int k = 0; k < depth; ++k) to[k * NR] = 0;
        }
      }
#else
      for (int k = 0; k < depth; ++k) {
        C* const to = packed_b + ni * KT * NR + k * NR;
        GLOBAL const STORED(DTYPE)* const from = pb + (k0 + k) * shape.b.row + (n0 + ni * NR) * B_STEP;
        if (width == NR) {
          for (int n = 0; n < NR; ++n) to[n] = (C)LOAD(DTYPE, from, n * B_STEP);
        } else {
          for (int n = 0; n < NR; ++n) to[n] = n < width ? (C)LOAD(DTYPE, from, n * B_STEP) : 0;
        }
      }
#endif
    }
    for (int mi = 0; mi < a_panels; ++mi) {
      for (int ni = 0; ni < b_panels; ++ni) {
        const C* const qa = packed_a + mi * KT * MR;
        const C* const qb = packed_b + ni * KT * NR;
        C* const tile = sums + mi * MR * NT + ni * NR;
        V t0 = vload16(0, tile), t1 = vload16(0, tile + NT), t2 = vload16(0, tile + 2 * NT),
          t3 = vload16(0, tile + 3 * NT);
        for (int k = 0; k < depth; ++k) {
          const V line = vload16(k, qb);
          t0 = fma((V)(qa[k * MR]), line, t0);
          t1 = fma((V)(qa[k * MR + 1]), line, t1);
          t2 = fma((V)(qa[k * MR + 2]), line, t2);
          t3 = fma((V)(qa[k * MR + 3]), line, t3);
        }
        vstore16(t0, 0, tile);
        vstore16(t1, 0, tile + NT);
        vstore16(t2, 0, tile + 2 * NT);
        vstore16(t3, 0, tile + 3 * NT);
      }
    }
  }
  GLOBAL STORED(OUT)* po = POINTER(STORED(OUT), out) + GROUP(2) * shape.out.batch;
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      C value = alpha * sums[m * NT + n];
#ifdef ADDEND
      value += beta * (C)LOAD(DTYPE, POINTER(const STORED(DTYPE), addend), GROUP(2) * shape.addend.batch +
                              (m0 + m) * shape.addend.row + (n0 + n) * shape.addend.column);
#endif
      STORE(OUT, po, (m0 + m) * shape.out.row + (n0 + n) * shape.out.column, value);
    }
  }
}
)"
