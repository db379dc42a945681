// Matrix products: tiles of a few rows by a few panels of 16 columns whose sums stay in registers, dot
// products of contiguous rows, and the packing of panels.
#include "vector.h"
#include "../gemm_operands.h"
#include "declarations.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

// Vectors of a panel, and what a tile's sums, a row of b and a broadcast of a leave of the registers.
constexpr int kVectors = kPanel / kLanes;
constexpr int kTileRows = kLanes == 4 ? 2 : 6;
constexpr int kTilePanels = kLanes == 16 ? 4 : 1;
// Of b, so that a tile's part of it stays in the second-level cache.
constexpr int64_t kDepth = 768;

template <class T>
OPSMITH_INLINE void put(T* c, F x, int64_t lanes) {
  if (lanes >= kLanes) {
    store(c, x);
  } else if (lanes > 0) {
    store_some(c, x, lanes);
  }
}

template <class T>
OPSMITH_INLINE F get(const T* c, int64_t lanes) {
  return lanes >= kLanes ? load(c) : lanes > 0 ? load_some(c, lanes) : zero();
}

// A tile's sums on their way to c, through the first-level cache: one function ends all tiles, whatever their
// size. Adds the bias and what is there already. `columns` is how many of the tile's are within c.
template <class T>
__attribute__((noinline)) void finish_tile(const float* sums, int64_t rows, int64_t vectors, float factor,
                                           T* c, int64_t c_row, const T* bias, int64_t columns,
                                           bool accumulates) {
  const F alpha = splat(factor);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t lanes = columns - v * kLanes;
      T* const to = c + r * c_row + v * kLanes;
      F value = load(sums + (r * vectors + v) * kLanes) * alpha;
      if (bias != nullptr) {
        value = value + get(bias + v * kLanes, lanes);
      }
      if (accumulates) {
        value = value + get(to, lanes);
      }
      put(to, value, lanes);
    }
  }
}

template <int R, int V>
OPSMITH_INLINE void clear_sums(F (&sums)[R][V]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sums[r][v] = zero();
    }
  }
}

template <int R, int V>
OPSMITH_INLINE void store_sums(float* block, F (&sums)[R][V]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      store(block + (r * V + v) * kLanes, sums[r][v]);
    }
  }
}

// Not inlined: gcc 12 would keep the sums in memory.
template <int R, int P>
__attribute__((noinline)) void tile(const Gemm<float>& g, const float* a, const float* b, int64_t depth,
                                    float* c, const float* bias, int64_t columns, bool accumulates) {
  constexpr int V = P * kVectors;
  F sums[R][V];
  clear_sums(sums);
  const int64_t a_row = g.a_row, a_depth = g.a_depth, b_depth = g.b_depth, b_panel = g.b_panel;
  for (int64_t k = 0; k < depth; ++k) {
    F row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = load(b + v / kVectors * b_panel + v % kVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F one = splat(a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = fma(one, row[v], sums[r][v]);
      }
    }
    a += a_depth;
    b += b_depth;
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_tile(block, R, V, g.alpha, c, g.c_row, bias, columns, accumulates);
}

// ---- bfloat16: pairs of neighbours in depth

// `at` is the tile's first element in c.
__attribute__((noinline)) void finish_bfloat16_tile(const Gemm<Bfloat16>& g, const float* block, int64_t rows,
                                                    int64_t vectors, int64_t at, const Bfloat16* bias,
                                                    int64_t columns) {
  if (g.sums != nullptr) {
    finish_tile<float>(block, rows, vectors, g.alpha, g.sums + at, g.c_row, nullptr, columns, g.accumulates);
  } else {
    finish_tile(block, rows, vectors, g.alpha, g.c + at, g.c_row, bias, columns, g.accumulates);
  }
}

OPSMITH_INLINE uint32_t pair_at(const Bfloat16* p) {
  uint32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return pair;
}

// Vectors of pairs as they lie in memory.
OPSMITH_INLINE F load_pairs(const Bfloat16* p) {
  return load(reinterpret_cast<const float*>(p));
}

// sum + a₀b₀ + a₁b₁ in float32, of the halves of each lane.
struct Plain {
  struct Operand {
    F first, second;
  };

  OPSMITH_INLINE Operand row(F pairs) { return {lower_bfloat16(pairs), upper_bfloat16(pairs)}; }
  OPSMITH_INLINE Operand both(uint32_t pair) {
    const uint32_t first = pair << 16, second = pair & 0xffff0000u;
    float x, y;
    __builtin_memcpy(&x, &first, sizeof x);
    __builtin_memcpy(&y, &second, sizeof y);
    return {splat(x), splat(y)};
  }
  OPSMITH_INLINE F add(F sum, Operand a, Operand b) {
    return fma(a.second, b.second, fma(a.first, b.first, sum));
  }
};

template <int R, int V>
OPSMITH_INLINE void add_pairs(F (&sums)[R][V], const uint32_t (&pairs)[R], const Bfloat16* b,
                              int64_t b_panel) {
  Plain::Operand row[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    row[v] = Plain::row(load_pairs(b + v / kVectors * b_panel + v % kVectors * 2 * kLanes));
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Plain::Operand one = Plain::both(pairs[r]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sums[r][v] = Plain::add(sums[r][v], one, row[v]);
    }
  }
}

template <int R, int P>
__attribute__((noinline)) void plain_tile(const Gemm<Bfloat16>& g, const Bfloat16* a, const Bfloat16* b,
                                          int64_t at, const Bfloat16* bias, int64_t columns) {
  constexpr int V = P * kVectors;
  F sums[R][V];
  clear_sums(sums);
  const int64_t a_row = g.a_row, b_panel = g.b_panel, pairs = g.depth / 2;
  uint32_t pair[R];
  for (int64_t k = 0; k < pairs; ++k) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      pair[r] = pair_at(a + r * a_row);
    }
    add_pairs(sums, pair, b, b_panel);
    a += 2;
    b += 2 * kPanel;
  }
  if (g.depth % 2 != 0) {
    // The second of the last pair is not in a; 0 stands for it, as in b.
    for (int r = 0; r < R; ++r) {
      pair[r] = a[r * a_row].bits;
    }
    add_pairs(sums, pair, b, b_panel);
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_bfloat16_tile(g, block, R, V, at, bias, columns);
}

#if defined(__AVX512F__)
#define OPSMITH_BF16 __attribute__((target("avx512bf16")))
// VDPBF16PS: subnormal operands count as 0.
struct Paired {
  using Operand = F;
  static inline __attribute__((always_inline)) F row(F pairs) { return pairs; }
  static inline __attribute__((always_inline)) F both(uint32_t pair) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair)));
  }
  static inline __attribute__((always_inline)) OPSMITH_BF16 F add(F sum, F a, F b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
  }
};

template <int R, int P>
OPSMITH_BF16 __attribute__((noinline)) void paired_tile(const Gemm<Bfloat16>& g, const Bfloat16* a,
                                                        const Bfloat16* b, int64_t at, const Bfloat16* bias,
                                                        int64_t columns) {
  constexpr int V = P * kVectors;
  F sums[R][V];
  clear_sums(sums);
  const int64_t a_row = g.a_row, b_panel = g.b_panel, pairs = (g.depth + 1) / 2, whole = g.depth / 2;
  for (int64_t k = 0; k < pairs; ++k) {
    F row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = load_pairs(b + v * b_panel);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      // The second of an odd depth's last pair is not in a; 0 stands for it, as in b.
      const F one = Paired::both(k < whole ? pair_at(a + r * a_row) : a[r * a_row].bits);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = Paired::add(sums[r][v], one, row[v]);
      }
    }
    a += 2;
    b += 2 * kPanel;
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_bfloat16_tile(g, block, R, V, at, bias, columns);
}
#endif

// b as it is, row after row: for so few rows of a that packing would cost more than it saves.
template <int R>
__attribute__((noinline)) void plain_unpacked_tile(const Gemm<Bfloat16>& g, const Bfloat16* a,
                                                   const Bfloat16* b, int64_t at, const Bfloat16* bias,
                                                   int64_t columns) {
  constexpr int V = kTilePanels * kVectors;
  F sums[R][V];
  clear_sums(sums);
  const int64_t a_row = g.a_row, b_row = g.b_depth;
  for (int64_t k = 0; k < g.depth; k += 2) {
    const bool is_pair = k + 1 < g.depth;
    Plain::Operand row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = {load(b + v * kLanes), is_pair ? load(b + b_row + v * kLanes) : zero()};
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Plain::Operand one = Plain::both(is_pair ? pair_at(a + r * a_row) : a[r * a_row].bits);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = Plain::add(sums[r][v], one, row[v]);
      }
    }
    a += 2;
    b += 2 * b_row;
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_bfloat16_tile(g, block, R, V, at, bias, columns);
}

#if defined(__AVX512F__)
// The same in pairs: neighbours in depth lie in two rows, and are put side by side on the way.
template <int R>
OPSMITH_BF16 __attribute__((noinline)) void paired_unpacked_tile(const Gemm<Bfloat16>& g, const Bfloat16* a,
                                                                 const Bfloat16* b, int64_t at,
                                                                 const Bfloat16* bias, int64_t columns) {
  constexpr int V = kTilePanels * kVectors;
  F sums[R][V];
  clear_sums(sums);
  alignas(64) int16_t places[2][2 * kLanes];
  for (int i = 0; i < kLanes; ++i) {
    for (int half = 0; half < 2; ++half) {
      places[half][2 * i] = static_cast<int16_t>(half * kLanes + i);
      places[half][2 * i + 1] = static_cast<int16_t>(2 * kLanes + half * kLanes + i);
    }
  }
  const __m512i low = _mm512_load_si512(places[0]), high = _mm512_load_si512(places[1]);
  const int64_t a_row = g.a_row, b_row = g.b_depth;
  for (int64_t k = 0; k < g.depth; k += 2) {
    const bool is_pair = k + 1 < g.depth;
    F row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v += 2) {
      const __m512i first = _mm512_loadu_si512(b + v * kLanes);
      const __m512i second = is_pair ? _mm512_loadu_si512(b + b_row + v * kLanes) : _mm512_setzero_si512();
      row[v] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, low, second));
      row[v + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(first, high, second));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F one = Paired::both(is_pair ? pair_at(a + r * a_row) : a[r * a_row].bits);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = Paired::add(sums[r][v], one, row[v]);
      }
    }
    a += 2;
    b += 2 * b_row;
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_bfloat16_tile(g, block, R, V, at, bias, columns);
}
#endif

// ---- from the number of rows and panels to a tile

using FloatTile = void(const Gemm<float>& g, const float* a, const float* b, int64_t depth, float* c,
                       const float* bias, int64_t columns, bool accumulates);
using Bfloat16Tile = void(const Gemm<Bfloat16>& g, const Bfloat16* a, const Bfloat16* b, int64_t at,
                          const Bfloat16* bias, int64_t columns);

#define OPSMITH_ROWS(name, P) {name<1, P>, name<2, P>, name<3, P>, name<4, P>, name<5, P>, name<6, P>}
#if defined(__AVX512F__)
#define OPSMITH_TILES(name) \
  {OPSMITH_ROWS(name, 1), OPSMITH_ROWS(name, 2), OPSMITH_ROWS(name, 3), OPSMITH_ROWS(name, 4)}
#elif defined(__AVX2__)
#define OPSMITH_TILES(name) {OPSMITH_ROWS(name, 1)}
#else
#define OPSMITH_TILES(name)  \
  {                          \
    {                        \
      name<1, 1>, name<2, 1> \
    }                        \
  }
#endif

#if defined(__AVX2__)
#define OPSMITH_EACH_ROWS(name) {name<1>, name<2>, name<3>, name<4>, name<5>, name<6>}
#else
#define OPSMITH_EACH_ROWS(name) {name<1>, name<2>}
#endif
constexpr Bfloat16Tile* kUnpackedTiles[kTileRows] = OPSMITH_EACH_ROWS(plain_unpacked_tile);

constexpr FloatTile* kFloatTiles[kTilePanels][kTileRows] = OPSMITH_TILES(tile);
constexpr Bfloat16Tile* kPlainTiles[kTilePanels][kTileRows] = OPSMITH_TILES(plain_tile);
#if defined(__AVX512F__)
constexpr Bfloat16Tile* kPairedTiles[kTilePanels][kTileRows] = OPSMITH_TILES(paired_tile);
constexpr Bfloat16Tile* kPairedUnpackedTiles[kTileRows] = OPSMITH_EACH_ROWS(paired_unpacked_tile);
#endif

// One row by rows of b as they are: those are read from end to end, several at a time, and the sums stay in
// the first-level cache. `columns` is a multiple of kPanel.
__attribute__((noinline)) void one_row(const Gemm<float>& g, const float* a, const float* b, float* c,
                                       const float* bias, int64_t columns) {
  constexpr int kRows = 8;
  for (int64_t j = 0; j < columns; j += kLanes) {
    const F before = g.accumulates ? load(c + j) : zero();
    store(c + j, bias == nullptr ? before : before + load(bias + j));
  }
  int64_t k = 0;
  for (; k + kRows <= g.depth; k += kRows) {
    F factors[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      factors[i] = splat(g.alpha * a[(k + i) * g.a_depth]);
    }
    const float* const rows = b + k * g.b_depth;
    for (int64_t j = 0; j < columns; j += kLanes) {
      F all = load(c + j);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        all = fma(factors[i], load(rows + i * g.b_depth + j), all);
      }
      store(c + j, all);
    }
  }
  for (; k < g.depth; ++k) {
    const F factor = splat(g.alpha * a[k * g.a_depth]);
    for (int64_t j = 0; j < columns; j += kLanes) {
      store(c + j, fma(factor, load(b + k * g.b_depth + j), load(c + j)));
    }
  }
}

// Tiles of as equal numbers of rows as can be.
struct RowTiles {
  int64_t count;
  int64_t rows;
};
OPSMITH_INLINE RowTiles row_tiles(int64_t rows) {
  const int64_t count = (rows + kTileRows - 1) / kTileRows;
  return {count, count == 0 ? 0 : (rows + count - 1) / count};
}

}  // namespace

void gemm_float(const Gemm<float>& g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  if (row_end - row_begin == 1 && g.b_depth != kPanel) {
    const int64_t column = panel_begin * kPanel;
    one_row(g, g.a + row_begin * g.a_row, g.b + column, g.c + row_begin * g.c_row + column,
            g.bias == nullptr ? nullptr : g.bias + column, (panel_end - panel_begin) * kPanel);
    return;
  }
  const RowTiles tiles = row_tiles(row_end - row_begin);
  // A single tile of rows reads b once, in whatever order.
  const int64_t blocks = tiles.count == 1 ? 1 : (g.depth + kDepth - 1) / kDepth;
  const int64_t most = blocks == 0 ? 0 : (g.depth + blocks - 1) / blocks;
  for (int64_t from = 0; from < g.depth; from += most) {
    const int64_t depth = least(most, g.depth - from);
    for (int64_t panel = panel_begin; panel < panel_end; panel += kTilePanels) {
      const int64_t panels = least(kTilePanels, panel_end - panel);
      const int64_t column = panel * kPanel;
      for (int64_t row = row_begin; row < row_end; row += tiles.rows) {
        const int64_t rows = least(tiles.rows, row_end - row);
        kFloatTiles[panels - 1][rows - 1](
            g, g.a + row * g.a_row + from * g.a_depth, g.b + panel * g.b_panel + from * g.b_depth, depth,
            g.c + row * g.c_row + column, from == 0 && g.bias != nullptr ? g.bias + column : nullptr,
            g.columns - column, g.accumulates || from != 0);
      }
    }
  }
}

void gemm_bfloat16(const Gemm<Bfloat16>& g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end) {
  const RowTiles tiles = row_tiles(row_end - row_begin);
  for (int64_t panel = panel_begin; panel < panel_end; panel += kTilePanels) {
    const int64_t panels = least(kTilePanels, panel_end - panel);
    const int64_t column = panel * kPanel;
    for (int64_t row = row_begin; row < row_end; row += tiles.rows) {
      const int64_t rows = least(tiles.rows, row_end - row);
      Bfloat16Tile* chosen = kPlainTiles[panels - 1][rows - 1];
#if defined(__AVX512F__)
      if (g.paired) {
        chosen = kPairedTiles[panels - 1][rows - 1];
      }
#endif
      if (g.b_depth != 0) {
        chosen = kUnpackedTiles[rows - 1];
#if defined(__AVX512F__)
        if (g.paired) {
          chosen = kPairedUnpackedTiles[rows - 1];
        }
#endif
      }
      chosen(g, g.a + row * g.a_row, g.b + panel * g.b_panel, row * g.c_row + column,
             g.bias == nullptr ? nullptr : g.bias + column, g.columns - column);
    }
  }
}

// ---- dot products

namespace {

constexpr int kDotRows = kLanes == 16 ? 4 : 2;
constexpr int kDotColumns = 4;

OPSMITH_INLINE void put_one(float* c, float x) {
  *c = x;
}
OPSMITH_INLINE void put_one(Bfloat16* c, float x) {
  store_some(c, splat(x), 1);
}

// A sum on its way to c.
template <class T>
OPSMITH_INLINE void put_dot(const Dots<T>& d, int64_t row, int64_t column, F sums) {
  T* const to = d.c + row * d.c_row + column * d.c_column;
  float value = sum(sums) * d.alpha;
  if (d.bias != nullptr) {
    value += widened_one(d.bias[column]);
  }
  if (d.accumulates) {
    value += widened_one(*to);
  }
  put_one(to, value);
}

template <int R, int C, class T>
OPSMITH_INLINE void dots(const Dots<T>& d, int64_t row, int64_t column) {
  F sums[R][C];
  clear_sums(sums);
  const T* const a = d.a + row * d.a_row;
  const T* const b = d.b + column * d.b_row;
  int64_t k = 0;
  for (; k + kLanes <= d.depth; k += kLanes) {
    F x[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      x[j] = load(b + j * d.b_row + k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F y = load(a + r * d.a_row + k);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        sums[r][j] = fma(y, x[j], sums[r][j]);
      }
    }
  }
  const int64_t rest = d.depth - k;
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < C; ++j) {
      F all = sums[r][j];
      if (rest > 0) {
        all = fma(load_some(a + r * d.a_row + k, rest), load_some(b + j * d.b_row + k, rest), all);
      }
      put_dot(d, row + r, column + j, all);
    }
  }
}

// How elements are multiplied: widened, or in pairs.
struct Widened {
  template <int R, int C, class T>
  OPSMITH_INLINE void run(const Dots<T>& d, int64_t row, int64_t column) {
    dots<R, C>(d, row, column);
  }
};

#if defined(__AVX512F__)
// The first n of the pairs' elements, n below 32, and zeros.
OPSMITH_INLINE F load_some_pairs(const Bfloat16* p, int64_t n) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((__mmask32{1} << n) - 1, p));
}

template <int R, int C>
OPSMITH_BF16 __attribute__((noinline)) void paired_dots(const Dots<Bfloat16>& d, int64_t row,
                                                        int64_t column) {
  constexpr int64_t kEach = 2 * kLanes;
  F sums[R][C];
  clear_sums(sums);
  const Bfloat16* const a = d.a + row * d.a_row;
  const Bfloat16* const b = d.b + column * d.b_row;
  const int64_t whole = d.depth / kEach * kEach, rest = d.depth - whole;
  for (int64_t k = 0; k < whole; k += kEach) {
    F x[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      x[j] = load_pairs(b + j * d.b_row + k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F y = load_pairs(a + r * d.a_row + k);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        sums[r][j] = Paired::add(sums[r][j], y, x[j]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < C; ++j) {
      F all = sums[r][j];
      if (rest > 0) {
        all = Paired::add(all, load_some_pairs(a + r * d.a_row + whole, rest),
                          load_some_pairs(b + j * d.b_row + whole, rest));
      }
      put_dot(d, row + r, column + j, all);
    }
  }
}

struct InPairs {
  template <int R, int C>
  OPSMITH_INLINE void run(const Dots<Bfloat16>& d, int64_t row, int64_t column) {
    paired_dots<R, C>(d, row, column);
  }
};
#endif

template <class How, int C, class T>
__attribute__((noinline)) void dots_of_column(const Dots<T>& d, int64_t column) {
  int64_t row = 0;
  for (; row + kDotRows <= d.rows; row += kDotRows) {
    How::template run<kDotRows, C>(d, row, column);
  }
  if constexpr (kDotRows == 4) {
    if (row + 2 <= d.rows) {
      How::template run<2, C>(d, row, column);
      row += 2;
    }
  }
  if (row < d.rows) {
    How::template run<1, C>(d, row, column);
  }
}

template <class How, class T>
OPSMITH_INLINE void all_dots(const Dots<T>& d, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kDotColumns <= end; column += kDotColumns) {
    dots_of_column<How, kDotColumns>(d, column);
  }
  for (; column < end; ++column) {
    dots_of_column<How, 1>(d, column);
  }
}

// ---- packing

struct Pair {
  Bfloat16 of[2];
};

// A unit is what lies together in a panel: an element of float32, a pair of bfloat16.
template <class Unit, class T>
OPSMITH_INLINE Unit unit_at(const T* p) {
  Unit unit;
  __builtin_memcpy(&unit, p, sizeof unit);
  return unit;
}

// Columns whose depth is contiguous, 4 × 4 units at a time.
template <class Unit, class T>
OPSMITH_INLINE void pack_columns(const T* b, int64_t column_stride, int64_t units, int64_t columns,
                                 T* panel) {
  constexpr int64_t kEach = sizeof(Unit) / sizeof(T);
  typedef uint32_t Four __attribute__((vector_size(16)));
  int64_t k = 0;
  for (; k + 4 <= units; k += 4) {
    for (int64_t j = 0; j < kPanel; j += 4) {
      if (j + 4 > columns) {
        for (int64_t one = j; one < j + 4; ++one) {
          for (int64_t i = 0; i < 4; ++i) {
            const Unit unit =
                one < columns ? unit_at<Unit>(b + one * column_stride + (k + i) * kEach) : Unit{};
            __builtin_memcpy(panel + ((k + i) * kPanel + one) * kEach, &unit, sizeof unit);
          }
        }
        continue;
      }
      const T* const from = b + j * column_stride + k * kEach;
      const Four r0 = unit_at<Four>(from), r1 = unit_at<Four>(from + column_stride),
                 r2 = unit_at<Four>(from + 2 * column_stride), r3 = unit_at<Four>(from + 3 * column_stride);
      const Four low01 = __builtin_shuffle(r0, r1, Four{0, 4, 1, 5}),
                 low23 = __builtin_shuffle(r2, r3, Four{0, 4, 1, 5}),
                 high01 = __builtin_shuffle(r0, r1, Four{2, 6, 3, 7}),
                 high23 = __builtin_shuffle(r2, r3, Four{2, 6, 3, 7});
      const Four columns4[4] = {__builtin_shuffle(low01, low23, Four{0, 1, 4, 5}),
                                __builtin_shuffle(low01, low23, Four{2, 3, 6, 7}),
                                __builtin_shuffle(high01, high23, Four{0, 1, 4, 5}),
                                __builtin_shuffle(high01, high23, Four{2, 3, 6, 7})};
      for (int64_t i = 0; i < 4; ++i) {
        __builtin_memcpy(panel + ((k + i) * kPanel + j) * kEach, &columns4[i], sizeof(Four));
      }
    }
  }
  for (; k < units; ++k) {
    for (int64_t j = 0; j < kPanel; ++j) {
      const Unit unit = j < columns ? unit_at<Unit>(b + j * column_stride + k * kEach) : Unit{};
      __builtin_memcpy(panel + (k * kPanel + j) * kEach, &unit, sizeof unit);
    }
  }
}

}  // namespace

void dots_float(const Dots<float>& d, int64_t begin, int64_t end) {
  all_dots<Widened>(d, begin, end);
}
void dots_bfloat16(const Dots<Bfloat16>& d, int64_t begin, int64_t end) {
#if defined(__AVX512F__)
  if (d.paired) {
    all_dots<InPairs>(d, begin, end);
    return;
  }
#endif
  all_dots<Widened>(d, begin, end);
}

void pack_float(const float* b, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
                float* panels) {
  // Whole panels of contiguous rows are packed together: each row is read once, from end to end.
  const int64_t whole = column_stride == 1 && depth_stride != 1 ? columns / kPanel : 0;
  for (int64_t k = 0; whole > 0 && k < depth; ++k) {
    for (int64_t v = 0; v < whole * kVectors; ++v) {
      store(panels + (v / kVectors * depth + k) * kPanel + v % kVectors * kLanes,
            load(b + k * depth_stride + v * kLanes));
    }
  }
  for (int64_t first = whole * kPanel; first < columns; first += kPanel) {
    const float* const from = b + first * column_stride;
    float* const panel = panels + first * depth;
    const int64_t count = least(kPanel, columns - first);
    if (depth_stride == 1) {
      pack_columns<float>(from, column_stride, depth, count, panel);
      continue;
    }
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < kPanel; ++j) {
        panel[k * kPanel + j] = j < count ? from[k * depth_stride + j * column_stride] : 0.0f;
      }
    }
  }
}

void pack_bfloat16(const Bfloat16* b, int64_t depth_stride, int64_t column_stride, int64_t depth,
                   int64_t columns, Bfloat16* panels) {
  const int64_t size = (depth + 1) / 2 * 2 * kPanel;
  const int64_t whole = column_stride == 1 && depth_stride != 1 ? columns / kPanel : 0;
  for (int64_t k = 0; whole > 0 && k < depth; k += 2) {
    const Bfloat16* const first = b + k * depth_stride;
    for (int64_t v = 0; v < whole * kVectors; ++v) {
      const F second = k + 1 < depth ? load(first + depth_stride + v * kLanes) : zero();
      store(reinterpret_cast<float*>(panels + v / kVectors * size + k * kPanel + v % kVectors * 2 * kLanes),
            interleaved(load(first + v * kLanes), second));
    }
  }
  for (int64_t first = whole * kPanel; first < columns; first += kPanel) {
    const Bfloat16* const from = b + first * column_stride;
    Bfloat16* const panel = panels + first / kPanel * size;
    const int64_t count = least(kPanel, columns - first);
    int64_t k = 0;
    if (depth_stride == 1) {
      pack_columns<Pair>(from, column_stride, depth / 2, count, panel);
      k = depth / 2 * 2;
    }
    for (; k < depth; k += 2) {
      Bfloat16* const to = panel + k * kPanel;
      for (int64_t j = 0; j < kPanel; ++j) {
        const Bfloat16* const pair = from + k * depth_stride + j * column_stride;
        to[2 * j] = j < count ? pair[0] : Bfloat16{};
        to[2 * j + 1] = j < count && k + 1 < depth ? pair[depth_stride] : Bfloat16{};
      }
    }
  }
}

void pair_panel(float* panel, int64_t depth) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (int v = 0; v < kVectors; ++v) {
      const float* const from = panel + k * kPanel + v * kLanes;
      const F second = k + 1 < depth ? load(from + kPanel) : zero();
      store(panel + k / 2 * kPanel + v * kLanes, interleaved(load(from), second));
    }
  }
}

}  // namespace opsmith::optimized::OPSMITH_ISA
