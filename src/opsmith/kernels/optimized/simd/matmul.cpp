// Matrix products: tiles of a few rows by a few panels of 16 columns whose sums stay in registers, dot
// products of contiguous rows, and the packing of panels.
#include <utility>

#include "vector.h"
#include "../matmul_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr int kVectors = kPanel / kLanes;  // of a panel
// Of b, so that a tile's part of it stays in the second-level cache.
constexpr int64_t kDepth = 768;
// Of rows of b that are not packed. With few tiles of rows their pages stay known while the panels are taken
// from them; with more a tile's part of b stays in the second-level cache.
constexpr int64_t kUnpackedDepth = 64;
constexpr int64_t kUnpackedManyDepth = 384;
constexpr int64_t kFewTiles = 4;
// Of an a whose depth is not contiguous, so that a tile's pages stay known, and its lines in the first-level
// cache for the next.
constexpr int64_t kStridedDepth = 64;
constexpr int64_t kFarDepth = 256;

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
// size. Adds the biases and what is there already. `columns` is how many of the tile's are within c.
template <class T>
__attribute__((noinline)) void finish_tile(const float* sums, int64_t rows, int64_t vectors, float factor,
                                           T* c, int64_t c_row, const T* bias, const float* row_bias,
                                           int64_t columns, float beta) {
  const F alpha = splat(factor), share = splat(beta);
  for (int64_t r = 0; r < rows; ++r) {
    // -0 leaves each value, zeros of either sign too, as it is.
    const F of_row = splat(row_bias == nullptr ? -0.0f : row_bias[r]);
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t lanes = columns - v * kLanes;
      T* const to = c + r * c_row + v * kLanes;
      F value = fma(load(sums + (r * vectors + v) * kLanes), alpha, of_row);
      if (bias != nullptr) {
        value = value + get(bias + v * kLanes, lanes);
      }
      if (beta != 0.0f) {
        value = fma(get(to, lanes), share, value);
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

// A whole tile whose sums are not scaled, right from the registers; `adds` what is there already.
template <int R, int V>
OPSMITH_INLINE void put_sums(F (&sums)[R][V], float* c, int64_t c_row, const float* bias,
                             const float* row_bias, bool adds) {
  // -0 leaves each value, zeros of either sign too, as it is.
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const F of_row = splat(row_bias == nullptr ? -0.0f : row_bias[r]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      float* const to = c + r * c_row + v * kLanes;
      F value = sums[r][v] + of_row;
      if (bias != nullptr) {
        value = value + load(bias + v * kLanes);
      }
      if (adds) {
        value = value + load(to);
      }
      store(to, value);
    }
  }
}

// Not inlined: gcc 12 would keep the sums in memory.
template <int R, int P>
__attribute__((noinline)) void tile(const Matmul<float>& g, const float* a, const float* b, int64_t depth,
                                    float* c, const float* bias, const float* row_bias, int64_t columns,
                                    float beta) {
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
  if (g.alpha == 1.0f && (beta == 0.0f || beta == 1.0f) && columns >= V * kLanes) {
    put_sums(sums, c, g.c_row, bias, row_bias, beta != 0.0f);
    return;
  }
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_tile(block, R, V, g.alpha, c, g.c_row, bias, row_bias, columns, beta);
}

// ---- bfloat16: pairs of neighbours in depth

// `at` is the tile's first element in c.
__attribute__((noinline)) void finish_block(const Matmul<Bfloat16>& g, const float* block, int64_t rows,
                                            int64_t vectors, int64_t at, const Bfloat16* bias,
                                            int64_t columns) {
  if (g.sums != nullptr) {
    finish_tile<float>(block, rows, vectors, g.alpha, g.sums + at, g.c_row, nullptr, nullptr, columns,
                       g.beta);
  } else {
    finish_tile(block, rows, vectors, g.alpha, g.c + at, g.c_row, bias, nullptr, columns, g.beta);
  }
}

template <int R, int V>
OPSMITH_INLINE void finish_bfloat16_tile(const Matmul<Bfloat16>& g, F (&sums)[R][V], int64_t at,
                                         const Bfloat16* bias, int64_t columns) {
  alignas(64) float block[R * V * kLanes];
  store_sums(block, sums);
  finish_block(g, block, R, V, at, bias, columns);
}

OPSMITH_INLINE uint32_t pair_at(const Bfloat16* p) {
  uint32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return pair;
}

// A pair of each row of a times rows of b. The second of an odd depth's last pair is not in a; 0 stands for
// it, as in b.
template <class How, int R, int V>
OPSMITH_INLINE void add_pairs(F (&sums)[R][V], const Bfloat16* a, int64_t a_row,
                              const typename How::Operand (&row)[V], bool is_pair) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const typename How::Operand one = How::both(is_pair ? pair_at(a + r * a_row) : a[r * a_row].bits);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sums[r][v] = How::add(sums[r][v], one, row[v]);
    }
  }
}

template <class How, int R, int V>
OPSMITH_INLINE void add_packed_pairs(F (&sums)[R][V], const Bfloat16* a, int64_t a_row, const Bfloat16* b,
                                     int64_t b_panel, bool is_pair) {
  typename How::Operand row[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const Bfloat16* const pairs = b + v / kVectors * b_panel + v % kVectors * 2 * kLanes;
    row[v] = How::row(load(reinterpret_cast<const float*>(pairs)));
  }
  add_pairs<How>(sums, a, a_row, row, is_pair);
}

template <class How, int R, int P>
__attribute__((noinline)) void packed_tile(const Matmul<Bfloat16>& g, const Bfloat16* a, const Bfloat16* b,
                                           int64_t at, const Bfloat16* bias, int64_t columns) {
  F sums[R][P * kVectors];
  clear_sums(sums);
  const int64_t a_row = g.a_row, b_panel = g.b_panel, pairs = g.depth / 2;
  for (int64_t k = 0; k < pairs; ++k) {
    add_packed_pairs<How>(sums, a, a_row, b, b_panel, true);
    a += 2;
    b += 2 * kPanel;
  }
  if (g.depth % 2 != 0) {
    add_packed_pairs<How>(sums, a, a_row, b, b_panel, false);
  }
  finish_bfloat16_tile(g, sums, at, bias, columns);
}

// b as it is, row after row: for so few rows of a that packing would cost more than it saves.
template <class How, int R>
__attribute__((noinline)) void unpacked_tile(const Matmul<Bfloat16>& g, const Bfloat16* a, const Bfloat16* b,
                                             int64_t at, const Bfloat16* bias, int64_t columns) {
  constexpr int V = kTilePanels * kVectors;
  F sums[R][V];
  clear_sums(sums);
  const int64_t a_row = g.a_row, b_row = g.b_depth;
  for (int64_t k = 0; k < g.depth; k += 2) {
    const bool is_pair = k + 1 < g.depth;
    typename How::Operand row[V];
    How::rows(b, is_pair ? b + b_row : nullptr, row);
    add_pairs<How>(sums, a, a_row, row, is_pair);
    a += 2;
    b += 2 * b_row;
  }
  finish_bfloat16_tile(g, sums, at, bias, columns);
}

// ---- from the number of rows and panels to a tile

struct FloatTiles {
  using Function = void(const Matmul<float>& g, const float* a, const float* b, int64_t depth, float* c,
                        const float* bias, const float* row_bias, int64_t columns, float beta);
  template <int R, int P>
  static constexpr Function* of = tile<R, P>;
};

using Bfloat16Tile = void(const Matmul<Bfloat16>& g, const Bfloat16* a, const Bfloat16* b, int64_t at,
                          const Bfloat16* bias, int64_t columns);

template <class How>
struct PackedTiles {
  using Function = Bfloat16Tile;
  template <int R, int P>
  static constexpr Function* of = packed_tile<How, R, P>;
};

// Of as many panels as a tile has.
template <class How>
struct UnpackedTiles {
  using Function = Bfloat16Tile;
  template <int R, int>
  static constexpr Function* of = unpacked_tile<How, R>;
};

template <class Tiles, class Sequence = std::make_integer_sequence<int, kTilePanels * kTileRows>>
struct Table;
template <class Tiles, int... I>
struct Table<Tiles, std::integer_sequence<int, I...>> {
  static constexpr
      typename Tiles::Function* kTiles[] = {Tiles::template of<I % kTileRows + 1, I / kTileRows + 1>...};
};

// A single row takes more panels than a tile of several: its sums alone would wait for one another.
constexpr int kRowPanels = kVectors > 4 ? 1 : kVectors > 2 ? 2 : 4;
constexpr int64_t most_panels(int64_t rows) {
  return rows == 1 ? kRowPanels : kTilePanels;
}

template <class Tiles, class Sequence = std::make_integer_sequence<int, kRowPanels>>
struct RowTable;
template <class Tiles, int... I>
struct RowTable<Tiles, std::integer_sequence<int, I...>> {
  static constexpr typename Tiles::Function* kTiles[] = {Tiles::template of<1, I + 1>...};
};

template <class Tiles>
OPSMITH_INLINE typename Tiles::Function* tile_of(int64_t rows, int64_t panels) {
  if (rows == 1) {
    return RowTable<Tiles>::kTiles[panels - 1];
  }
  return Table<Tiles>::kTiles[(panels - 1) * kTileRows + rows - 1];
}

template <class How>
OPSMITH_INLINE Bfloat16Tile* bfloat16_tile_of(const Matmul<Bfloat16>& g, int64_t rows, int64_t panels) {
  return g.b_depth != 0 ? tile_of<UnpackedTiles<How>>(rows, 1) : tile_of<PackedTiles<How>>(rows, panels);
}

// One row by rows of b as they are: those are read from end to end, several at a time, and the sums stay in
// the first-level cache. `columns` is a multiple of kPanel.
__attribute__((noinline)) void one_row(const Matmul<float>& g, const float* a, const float* b, float* c,
                                       const float* bias, float row_bias, int64_t columns) {
  constexpr int kRows = 8;
  for (int64_t j = 0; j < columns; j += kLanes) {
    const F before = (g.beta == 0.0f ? zero() : load(c + j) * splat(g.beta)) + splat(row_bias);
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

// How many rows or panels tiles have, up to `most`, as equal as can be.
OPSMITH_INLINE int64_t of_tile(int64_t count, int64_t most) {
  const int64_t tiles = (count + most - 1) / most;
  return tiles == 0 ? 0 : (count + tiles - 1) / tiles;
}

int64_t depth_together(const Matmul<float>& g, bool is_single_tile, bool has_few_tiles) {
  if (g.a_depth >= kFarDepth) {
    return kStridedDepth;
  }
  if (g.b_depth != kPanel) {
    return has_few_tiles ? kUnpackedDepth : kUnpackedManyDepth;
  }
  // A single tile of rows reads panels once, in whatever order.
  return is_single_tile ? g.depth : kDepth;
}

// A row by some panels of float16, which are widened in registers.
template <int P>
OPSMITH_INLINE void add_widened_panels(const float* a, const Float16* b, int64_t panel, int64_t depth,
                                       float* to) {
  F sums[1][P * kVectors];
  clear_sums(sums);
  for (int64_t k = 0; k < depth; ++k) {
    const F one = splat(a[k]);
#pragma GCC unroll 8
    for (int v = 0; v < P * kVectors; ++v) {
      sums[0][v] = fma(one, load(b + v / kVectors * panel + k * kPanel + v % kVectors * kLanes), sums[0][v]);
    }
  }
  store_sums(to, sums);
}

// `count` places that are `step` elements apart, in pages that the processor would not foresee.
template <class T>
OPSMITH_INLINE void prefetch(const T* from, int64_t step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(from + i * step);
  }
}

}  // namespace

void matmul_float(const Matmul<float>& g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                  int64_t panel_end) {
  if (row_end - row_begin == 1 && g.b_depth != kPanel) {
    const int64_t column = panel_begin * kPanel;
    one_row(g, g.a + row_begin * g.a_row, g.b + column, g.c + row_begin * g.c_row + column,
            g.bias == nullptr ? nullptr : g.bias + column,
            g.row_bias == nullptr ? -0.0f : g.row_bias[row_begin], (panel_end - panel_begin) * kPanel);
    return;
  }
  const int64_t rows_of_tile = of_tile(row_end - row_begin, kTileRows);
  const int64_t panels_of_tile = of_tile(panel_end - panel_begin, most_panels(rows_of_tile));
  const bool has_few_tiles = row_end - row_begin <= kFewTiles * rows_of_tile;
  const int64_t together = depth_together(g, row_end - row_begin == rows_of_tile, has_few_tiles);
  const int64_t blocks = g.depth == 0 ? 0 : (g.depth + together - 1) / together;
  const int64_t most = blocks == 0 ? 0 : (g.depth + blocks - 1) / blocks;
  for (int64_t from = 0; from < g.depth; from += most) {
    const int64_t depth = least(most, g.depth - from);
    for (int64_t panel = panel_begin; panel < panel_end; panel += panels_of_tile) {
      const int64_t panels = least(panels_of_tile, panel_end - panel);
      const int64_t column = panel * kPanel;
      if (g.b_depth != kPanel && has_few_tiles && panel + panels_of_tile < panel_end) {
        // The rows of b that the next panel takes.
        const float* const next = g.b + (panel + panels_of_tile) * g.b_panel + from * g.b_depth;
        prefetch(next, g.b_depth, depth);
      }
      for (int64_t row = row_begin; row < row_end; row += rows_of_tile) {
        const int64_t rows = least(rows_of_tile, row_end - row);
        tile_of<FloatTiles>(rows, panels)(
            g, g.a + row * g.a_row + from * g.a_depth, g.b + panel * g.b_panel + from * g.b_depth, depth,
            g.c + row * g.c_row + column, from == 0 && g.bias != nullptr ? g.bias + column : nullptr,
            from == 0 && g.row_bias != nullptr ? g.row_bias + row : nullptr, g.columns - column,
            from == 0 ? g.beta : 1.0f);
      }
    }
  }
}

void matmul_bfloat16(const Matmul<Bfloat16>& g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                     int64_t panel_end) {
  const int64_t rows_of_tile = of_tile(row_end - row_begin, kTileRows);
  // Those of unpacked rows have one width.
  const int64_t most = g.b_depth == 0 ? most_panels(rows_of_tile) : kTilePanels;
  const int64_t panels_of_tile = of_tile(panel_end - panel_begin, most);
  for (int64_t panel = panel_begin; panel < panel_end; panel += panels_of_tile) {
    const int64_t panels = least(panels_of_tile, panel_end - panel);
    const int64_t column = panel * kPanel;
    for (int64_t row = row_begin; row < row_end; row += rows_of_tile) {
      const int64_t rows = least(rows_of_tile, row_end - row);
      Bfloat16Tile* const chosen =
          g.paired ? bfloat16_tile_of<Paired>(g, rows, panels) : bfloat16_tile_of<Widened>(g, rows, panels);
      chosen(g, g.a + row * g.a_row, g.b + panel * g.b_panel, row * g.c_row + column,
             g.bias == nullptr ? nullptr : g.bias + column, g.columns - column);
    }
  }
}

// ---- dot products

namespace {

constexpr int kDotColumns = 4;

OPSMITH_INLINE void put_one(float* c, float x) {
  *c = x;
}
template <class T>
OPSMITH_INLINE void put_one(T* c, float x) {
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
  if (d.beta != 0.0f) {
    value += d.beta * widened_one(*to);
  }
  put_one(to, value);
}

template <class How, int R, int C, class T>
OPSMITH_INLINE void dots(const Dots<T>& d, int64_t row, int64_t column) {
  F sums[R][C];
  clear_sums(sums);
  const T* const a = d.a + row * d.a_row;
  const T* const b = d.b + column * d.b_row;
  int64_t k = 0;
  for (; k + How::kStep <= d.depth; k += How::kStep) {
    F x[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      x[j] = How::load_step(b + j * d.b_row + k);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F y = How::load_step(a + r * d.a_row + k);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        sums[r][j] = How::add(sums[r][j], y, x[j]);
      }
    }
  }
  const int64_t rest = d.depth - k;
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < C; ++j) {
      F all = sums[r][j];
      if (rest > 0) {
        all = How::add(all, How::load_part(a + r * d.a_row + k, rest),
                       How::load_part(b + j * d.b_row + k, rest));
      }
      put_dot(d, row + r, column + j, all);
    }
  }
}

template <class How, int C, class T>
__attribute__((noinline)) void dots_of_column(const Dots<T>& d, int64_t column) {
  int64_t row = 0;
  for (; row + kDotRows <= d.rows; row += kDotRows) {
    dots<How, kDotRows, C>(d, row, column);
  }
  if constexpr (kDotRows == 4) {
    if (row + 2 <= d.rows) {
      dots<How, 2, C>(d, row, column);
      row += 2;
    }
  }
  if (row < d.rows) {
    dots<How, 1, C>(d, row, column);
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

// The lanes of two vectors whose places are given; gcc 11 has no __builtin_shufflevector.
#if defined(__clang__)
#define OPSMITH_LANES(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define OPSMITH_LANES(x, y, ...) __builtin_shuffle(x, y, Four{__VA_ARGS__})
#endif

// Columns whose depth is contiguous, a square of units at a time: as large as a vector of a panel's columns
// makes possible, or 4 × 4.
template <class Unit, class T>
OPSMITH_INLINE void pack_columns(const T* b, int64_t column_stride, int64_t units, int64_t columns,
                                 T* panel) {
  constexpr int64_t kEach = sizeof(Unit) / sizeof(T);
  typedef uint32_t Four __attribute__((vector_size(16)));
  int64_t k = 0;
  if constexpr (kLanes == kPanel) {
    for (; columns == kPanel && k + kPanel <= units; k += kPanel) {
      F square[kPanel];
      for (int64_t j = 0; j < kPanel; ++j) {
        square[j] = load(reinterpret_cast<const float*>(b + j * column_stride + k * kEach));
      }
      transpose(square);
      for (int64_t i = 0; i < kPanel; ++i) {
        store(reinterpret_cast<float*>(panel + (k + i) * kPanel * kEach), square[i]);
      }
    }
  }
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
      const Four low01 = OPSMITH_LANES(r0, r1, 0, 4, 1, 5), low23 = OPSMITH_LANES(r2, r3, 0, 4, 1, 5),
                 high01 = OPSMITH_LANES(r0, r1, 2, 6, 3, 7), high23 = OPSMITH_LANES(r2, r3, 2, 6, 3, 7);
      const Four columns4[4] = {
          OPSMITH_LANES(low01, low23, 0, 1, 4, 5), OPSMITH_LANES(low01, low23, 2, 3, 6, 7),
          OPSMITH_LANES(high01, high23, 0, 1, 4, 5), OPSMITH_LANES(high01, high23, 2, 3, 6, 7)};
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

#undef OPSMITH_LANES

}  // namespace

void dots_float(const Dots<float>& d, int64_t begin, int64_t end) {
  all_dots<Widened>(d, begin, end);
}
void dots_bfloat16(const Dots<Bfloat16>& d, int64_t begin, int64_t end) {
  if (d.paired) {
    all_dots<Paired>(d, begin, end);
  } else {
    all_dots<Widened>(d, begin, end);
  }
}

namespace {

constexpr int64_t kAhead = 16;  // rows

// Whole panels of contiguous rows are packed together: each row is read once, from end to end. How many.
template <class T>
OPSMITH_INLINE int64_t pack_whole(const T* b, int64_t depth_stride, int64_t column_stride, int64_t depth,
                                  int64_t columns, float* panels) {
  const int64_t whole = column_stride == 1 && depth_stride != 1 ? columns / kPanel : 0;
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t lines = (whole * kPanel + kLine - 1) / kLine;
  for (int64_t k = 0; whole > 0 && k < depth; ++k) {
    prefetch(b + least(k + kAhead, depth - 1) * depth_stride, kLine, lines);
    for (int64_t v = 0; v < whole * kVectors; ++v) {
      store(panels + (v / kVectors * depth + k) * kPanel + v % kVectors * kLanes,
            load(b + k * depth_stride + v * kLanes));
    }
  }
  return whole;
}

}  // namespace

void pack_float(const float* b, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
                float* panels) {
  const int64_t whole = pack_whole(b, depth_stride, column_stride, depth, columns, panels);
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

void dots_float16(const Dots<Float16>& d, int64_t begin, int64_t end) {
  all_dots<Widened>(d, begin, end);
}

void row_float16(const float* a, const Float16* panels, int64_t panel, int64_t depth, int64_t count,
                 float* sums) {
  for (; count >= kRowPanels; count -= kRowPanels) {
    add_widened_panels<kRowPanels>(a, panels, panel, depth, sums);
    panels += kRowPanels * panel;
    sums += kRowPanels * kPanel;
  }
  for (; count > 0; --count) {
    add_widened_panels<1>(a, panels, panel, depth, sums);
    panels += panel;
    sums += kPanel;
  }
}

void pack_float16(const Float16* b, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, float* panels) {
  constexpr int64_t kAtOnce = 64;
  float widened[kPanel * kAtOnce];
  const int64_t whole = pack_whole(b, depth_stride, column_stride, depth, columns, panels);
  for (int64_t first = whole * kPanel; first < columns; first += kPanel) {
    const Float16* const from = b + first * column_stride;
    float* const panel = panels + first * depth;
    const int64_t count = least(kPanel, columns - first);
    for (int64_t begin = 0; depth_stride == 1 && begin < depth; begin += kAtOnce) {
      const int64_t n = least(kAtOnce, depth - begin);
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t k = 0; k < n; k += kLanes) {
          store(widened + j * kAtOnce + k,
                load_some(from + j * column_stride + begin + k, least(kLanes, n - k)));
        }
      }
      pack_columns<float>(widened, kAtOnce, n, count, panel + begin * kPanel);
    }
    for (int64_t k = 0; depth_stride != 1 && k < depth; ++k) {
      for (int64_t j = 0; j < kPanel; ++j) {
        panel[k * kPanel + j] = j < count ? widened_one(from[k * depth_stride + j * column_stride]) : 0.0f;
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
