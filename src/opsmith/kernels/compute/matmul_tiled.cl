R"(
// out = alpha * a b + beta * addend for matrices that lie in any way, one tile of `out` for each group, whose items share
// tiles of the operands in local memory. DTYPE and OUT are defined; A_BY_ROWS and B_BY_ROWS where rows are dense.
typedef COMPUTED(DTYPE) C;
#define MT 64
#define NT 64
#define KT 16
#define MR 4
#define NR 4

typedef struct { long batch, row, column; } Strides;
typedef struct { long m, n, k; Strides a, b, addend, out; } Shape;

KERNEL void run(BUFFER(const STORED(DTYPE), a), BUFFER(const STORED(DTYPE), b), BUFFER(const STORED(DTYPE), addend),
                BUFFER(STORED(OUT), out), const Shape shape, const C alpha, const C beta) {
  LOCAL C tile_a[KT][MT + 1];
  LOCAL C tile_b[KT][NT + 1];
  GLOBAL const STORED(DTYPE)* pa = POINTER(const STORED(DTYPE), a) + GROUP(2) * shape.a.batch;
  GLOBAL const STORED(DTYPE)* pb = POINTER(const STORED(DTYPE), b) + GROUP(2) * shape.b.batch;
  const int x = ITEM(0), y = ITEM(1), item = y * (NT / NR) + x, items = (MT / MR) * (NT / NR);
  const long m0 = (long)GROUP(1) * MT, n0 = (long)GROUP(0) * NT;
  C sums[MR][NR];
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) sums[i][j] = 0;
  }
  for (long k0 = 0; k0 < shape.k; k0 += KT) {
    for (int e = item; e < KT * MT; e += items) {
#ifdef A_BY_ROWS
      const int m = e / KT, k = e % KT;
#else
      const int m = e % MT, k = e / MT;
#endif
      tile_a[k][m] = m0 + m < shape.m && k0 + k < shape.k
                         ? (C)LOAD(DTYPE, pa, (m0 + m) * shape.a.row + (k0 + k) * shape.a.column)
                         : 0;
    }
    for (int e = item; e < KT * NT; e += items) {
#ifdef B_BY_ROWS
      const int n = e % NT, k = e / NT;
#else
      const int n = e / KT, k = e % KT;
#endif
      tile_b[k][n] = n0 + n < shape.n && k0 + k < shape.k
                         ? (C)LOAD(DTYPE, pb, (k0 + k) * shape.b.row + (n0 + n) * shape.b.column)
                         : 0;
    }
    BARRIER();
    for (int k = 0; k < KT; ++k) {
      for (int i = 0; i < MR; ++i) {
        const C left = tile_a[k][y + i * (MT / MR)];
        for (int j = 0; j < NR; ++j) sums[i][j] = fma(left, tile_b[k][x + j * (NT / NR)], sums[i][j]);
      }
    }
    BARRIER();
  }
  GLOBAL STORED(OUT)* po = POINTER(STORED(OUT), out) + GROUP(2) * shape.out.batch;
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) {
      const long m = m0 + y + i * (MT / MR), n = n0 + x + j * (NT / NR);
      if (m >= shape.m || n >= shape.n) continue;
      C value = alpha * sums[i][j];
#ifdef ADDEND
      value += beta * (C)LOAD(DTYPE, POINTER(const STORED(DTYPE), addend), GROUP(2) * shape.addend.batch +
                              m * shape.addend.row + n * shape.addend.column);
#endif
      STORE(OUT, po, m * shape.out.row + n * shape.out.column, value);
    }
  }
}
)"
