#include "strided_matmul.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "../common/temporary.h"
#include "../common/transposition.h"
#include "by_dtype.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized {
namespace {

// A piece of a product that one thread computes: some rows by some panels. Rows enough to read b's panels
// seldom.
constexpr int64_t kPieceRows = 192;
constexpr int64_t kPiecePanels = 4;
// Pieces enough for all threads, and rows enough for b to be packed for them.
constexpr int64_t kFewGroups = 8;
constexpr int64_t kPackingRows = 128;
// With no more rows than this packing b takes longer than it saves: where b's columns are contiguous, for dot
// products; where its rows are, for tiles that read them, which cost a tile little more than panels do.
constexpr int64_t kFewRows = 16;
constexpr int64_t kUnpackedRows = 24;
// With more rows too, where the processor knows all pages of b, and its rows do not take one another's place
// in the first-level cache.
constexpr int64_t kUnpackedManyRows = 96;
constexpr int64_t kFewPages = 1 << 20;
constexpr int64_t kSamePlace = 1024;
// Nor does it save anything of a b that stays in the first-level cache.
constexpr int64_t kUnpackedSize = 4096;
// Of an a whose depth is not contiguous, and of the whole product, from which on it is copied.
constexpr int64_t kLargeSize = 1 << 18;
constexpr int64_t kLargeProduct = 1 << 28;
// Of panels that are packed at a time, so that they stay in the second-level cache.
constexpr int64_t kPackedDepth = 768;
// Rows of b that are not packed are read in long pieces.
constexpr int64_t kLongPiecePanels = 32;
// Of panels that are widened, so that they stay in the first-level cache.
constexpr int64_t kWidenedDepth = 96;

// c of no depth: the bias, or what is there, of which beta is 1.
template <class T>
void fill(const Product<T>& p) {
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    for (int64_t i = 0; i < p.rows; ++i) {
      const T of_row = p.row_bias != nullptr ? p.row_bias[i] : T{};
      for (int64_t j = 0; p.beta == 0.0f && j < p.columns; ++j) {
        p.c.data[batch * p.c.batch + i * p.c.row + j * p.c.column] = p.bias != nullptr ? p.bias[j] : of_row;
      }
    }
  }
}

// aᵀ and bᵀ change places, so that c's rows are contiguous.
template <class T>
void transpose(Product<T>& p) {
  std::swap(p.rows, p.columns);
  std::swap(p.a, p.b);
  std::swap(p.a.row, p.a.column);
  std::swap(p.b.row, p.b.column);
  std::swap(p.c.row, p.c.column);
  std::swap(p.bias, p.row_bias);
}

// Rows of a whose depth is contiguous, which dot products and pairs of bfloat16 need.
template <class T>
bool make_depth_contiguous(KernelRuntimeContext& context, Product<T>& p) {
  if (p.a.column == 1 || p.depth == 1) {
    p.a.column = 1;
    return true;
  }
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr int64_t kBand = 32;  // rows that are copied together
  const int64_t row_stride = p.depth % kSamePlace == 0 ? p.depth + kPanel : p.depth;
  const int64_t bands = ceil_divided(p.rows, kBand);
  p.copy = temporary<T>(context, p.batches * p.rows * row_stride);
  T* const copy = p.copy;
  if (copy == nullptr) {
    return false;
  }
  parallel(p.batches * bands, row_grain_size(kBand * p.depth), [&, copy](int64_t begin, int64_t end) {
    for (int64_t band = begin; band < end; ++band) {
      const int64_t batch = band / bands, first = band % bands * kBand;
      const int64_t count = std::min(kBand, p.rows - first);
      const T* const from = p.a.data + batch * p.a.batch + first * p.a.row;
      T* const to = copy + (batch * p.rows + first) * row_stride;
      if (p.a.row == 1) {
        copy_matrix({count, {1, row_stride}}, {p.depth, {p.a.column, 1}}, reinterpret_cast<const Bits*>(from),
                    reinterpret_cast<Bits*>(to));
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t k = 0; k < p.depth; ++k) {
          to[i * row_stride + k] = from[i * p.a.row + k * p.a.column];
        }
      }
    }
  });
  p.a = {copy, row_stride, 1, p.rows * row_stride};
  return true;
}

// Sets the operands that products in simd/ share: all but b.
template <class Operands, class T>
void set_operands(Operands& to, const Product<T>& p, int64_t batch) {
  to.a = p.a.data + batch * p.a.batch;
  to.a_row = p.a.row;
  to.c = p.c.data + batch * p.c.batch;
  to.c_row = p.c.row;
  to.bias = p.bias;
  to.depth = p.depth;
  to.alpha = p.alpha;
  to.beta = p.beta;
  to.paired = multiplies_bfloat16();
}

template <class T>
void multiply_dots(const Product<T>& p, const ProductFunctions<T>& with) {
  constexpr int64_t kColumns = 16;
  const int64_t pieces = ceil_divided(p.columns, kColumns);
  const int64_t cost = p.rows * p.depth * kColumns / 8;
  parallel(p.batches * pieces, row_grain_size(cost), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t batch = begin / pieces, first = begin % pieces;
      const int64_t last = std::min(pieces, first + end - begin);
      Dots<T> dots;
      set_operands(dots, p, batch);
      dots.b = p.b.data + batch * p.b.batch;
      dots.b_row = p.b.column;
      dots.c_column = p.c.column;
      dots.rows = p.rows;
      with.dots(dots, first * kColumns, std::min(p.columns, last * kColumns));
      begin += last - first;
    }
  });
}

// A batch's product, but for b.
template <class T>
Matmul<T> matmul_of(const Product<T>& p, int64_t batch) {
  Matmul<T> matmul;
  set_operands(matmul, p, batch);
  matmul.a_depth = p.a.column;
  matmul.row_bias = p.row_bias;
  matmul.columns = p.columns;
  return matmul;
}

// Some panels of all batches; `b` are the first batch's.
template <class T>
void multiply_panels(const Product<T>& p, const ProductFunctions<T>& with, const T* b, int64_t b_depth,
                     int64_t b_panel, int64_t b_batch, int64_t panel_begin, int64_t panel_end) {
  const int64_t row_pieces = std::max<int64_t>(1, ceil_divided(p.rows, kPieceRows));
  const int64_t rows_of_piece = ceil_divided(p.rows, row_pieces);
  const bool is_unpacked = std::is_same_v<T, float> && b_depth != kPanel;
  const int64_t panels_of_piece = is_unpacked ? kLongPiecePanels : kPiecePanels;
  const int64_t panel_pieces = ceil_divided(panel_end - panel_begin, panels_of_piece);
  const int64_t each = row_pieces * panel_pieces;
  const int64_t cost = std::min(p.rows, rows_of_piece) * panels_of_piece * kPanel * p.depth / 16;
  parallel(p.batches * each, row_grain_size(cost), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t batch = at / each, piece = at % each;
      const int64_t row = piece / panel_pieces * rows_of_piece;
      const int64_t panel = panel_begin + piece % panel_pieces * panels_of_piece;
      Matmul<T> matmul = matmul_of(p, batch);
      matmul.b = b + batch * b_batch;
      matmul.b_depth = b_depth;
      matmul.b_panel = b_panel;
      const int64_t row_end = std::min(p.rows, row + rows_of_piece);
      const int64_t end_of_piece = std::min(panel_end, panel + panels_of_piece);
      with.matmul(matmul, row, row_end, panel, end_of_piece);
      if (p.finish.has_value()) {
        (*p.finish)(row, row_end, panel* kPanel, std::min(p.columns, end_of_piece * kPanel));
      }
    }
  });
}

// Some rows of a batch's product, by the panels from `first` to `end`, which are those of `group`.
struct PackingPiece {
  int64_t group;
  int64_t batch;
  int64_t first, end;
  int64_t column, columns;
  int64_t row, row_end;
};

// How work is divided whose threads pack kPiecePanels of b at a time: some rows by a group of panels.
template <class T>
class PackingPieces {
 public:
  // Of the panels from `begin` to `end`, each of which has `panel` elements.
  PackingPieces(const Product<T>& p, int64_t begin, int64_t end, int64_t panel)
      : p_(p), begin_(begin), end_(end), groups_(ceil_divided(end - begin, kPiecePanels)) {
    // With few groups the rows are divided too, and each thread packs b anew.
    const int64_t few = ceil_divided(kFewGroups, p.batches * groups_);
    row_pieces_ = std::clamp<int64_t>(p.rows / kPackingRows, 1, few);
    rows_ = ceil_divided(p.rows, row_pieces_);
    pieces_ = p.batches * groups_ * row_pieces_;
    const int64_t cost = rows_ * kPiecePanels * panel / 16;
    at_once_ = std::max<int64_t>(row_grain_size(cost), ceil_divided(pieces_, kMostParts));
  }

  // How often memory is needed for what is packed.
  int64_t parts() const { return ceil_divided(pieces_, at_once_); }

  // Calls body(slot, piece) for each piece, or for neighbours that have a group as one: `slot` says which
  // memory is its own.
  template <class Body>
  void for_each(Body body) const {
    parallel_in_slots(parts(), 1, [&](int64_t slot, int64_t part_begin, int64_t part_end) {
      const int64_t end = std::min(pieces_, part_end * at_once_);
      for (int64_t at = part_begin * at_once_; at < end;) {
        const int64_t last = std::min(end, (at / row_pieces_ + 1) * row_pieces_) - 1;
        body(slot, piece(at, last));
        at = last + 1;
      }
    });
  }

 private:
  PackingPiece piece(int64_t at, int64_t last) const {
    PackingPiece found;
    found.group = at / row_pieces_;  // of all batches
    found.batch = found.group / groups_;
    found.first = begin_ + found.group % groups_ * kPiecePanels;
    found.end = std::min(end_, found.first + kPiecePanels);
    found.column = found.first * kPanel;
    found.columns = std::min(p_.columns, found.end * kPanel) - found.column;
    found.row = at % row_pieces_ * rows_;
    found.row_end = std::min(p_.rows, (last % row_pieces_ + 1) * rows_);
    return found;
  }

  const Product<T>& p_;
  int64_t begin_, end_;
  int64_t groups_, row_pieces_, rows_, pieces_, at_once_;
};

// Packs the part of the piece's panels that begins at depth k.
template <class T, class Unit>
void pack(const Product<T>& p, const ProductFunctions<T>& with, const PackingPiece& at, int64_t k,
          int64_t depth, Unit* packed) {
  with.pack(p.b.data + at.batch * p.b.batch + at.column * p.b.column + k * p.b.row, p.b.row, p.b.column,
            depth, at.columns, packed);
}

// Packs kPiecePanels of b at a time, into memory that stays in the second-level cache, and multiplies all
// rows with them.
template <class T>
bool multiply_packing(KernelRuntimeContext& context, const Product<T>& p, const ProductFunctions<T>& with,
                      int64_t panel_begin, int64_t panel_end) {
  const PackingPieces by(p, panel_begin, panel_end, panel_size<T>(p.depth));
  const int64_t most = std::is_same_v<T, float> ? std::min(kPackedDepth, p.depth) : p.depth;
  const int64_t units = kPiecePanels * panel_size<T>(most);
  const auto memory = temporary<T>(context, by.parts() * units);
  if (memory == nullptr) {
    return false;
  }
  std::array<int64_t, kMostParts> packed_group;  // by slot
  packed_group.fill(-1);
  by.for_each([&](int64_t slot, const PackingPiece& at) {
    T* const packed = memory + slot * units;
    for (int64_t k = 0; k < p.depth; k += most) {
      const int64_t depth = std::min(most, p.depth - k), size = panel_size<T>(depth);
      if (depth != p.depth || packed_group[slot] != at.group) {
        pack(p, with, at, k, depth, packed);
        packed_group[slot] = at.group;
      }
      Matmul<T> matmul = matmul_of(p, at.batch);
      matmul.a += k * p.a.column;
      matmul.b = packed - at.first * size;
      matmul.b_depth = std::is_same_v<T, float> ? kPanel : 0;
      matmul.b_panel = size;
      matmul.depth = depth;
      if (k != 0) {
        matmul.bias = nullptr;
        matmul.row_bias = nullptr;
        matmul.beta = 1.0f;
      }
      with.matmul(matmul, at.row, at.row_end, at.first, at.end);
    }
  });
  return true;
}

// ---- float16, by way of float32

Temporary<float> widened_rows(KernelRuntimeContext& context, const Product<Float16>& p) {
  Temporary<float> rows = temporary<float>(context, p.batches * p.rows * p.depth);
  float* const to = rows.get();
  if (to == nullptr) {
    return rows;
  }
  parallel(p.batches * p.rows, row_grain_size(p.depth), [&p, to](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Float16* const from = p.a.data + row / p.rows * p.a.batch + row % p.rows * p.a.row;
      OPSMITH_BEST(widen_float16)(from, to + row * p.depth, p.depth);
    }
  });
  return rows;
}

// A row by packed panels, each of which is read once.
bool multiply_packed_row(KernelRuntimeContext& context, const Product<Float16>& p,
                         const ProductFunctions<Float16>& with) {
  const int64_t panel = panel_size<Float16>(p.depth);
  const auto rows = widened_rows(context, p);
  if (rows == nullptr) {
    return false;
  }
  PackingPieces(p, 0, panels_of(p.columns), panel).for_each([&](int64_t, const PackingPiece& at) {
    float sums[kPiecePanels * kPanel], summands[kPiecePanels * kPanel];
    const auto add = [&](const Float16* from, float factor) {
      OPSMITH_BEST(widen_float16)(from, summands, at.columns);
      std::transform(sums, sums + at.columns, summands, sums,
                     [factor](float sum, float summand) { return sum + factor * summand; });
    };
    with.row(rows + at.batch * p.depth, p.packed + at.first * panel, panel, p.depth, at.end - at.first, sums);
    std::for_each(sums, sums + at.columns, [&](float& sum) { sum *= p.alpha; });
    Float16* const to = p.c.data + at.batch * p.c.batch + at.column;
    if (p.bias != nullptr) {
      add(p.bias + at.column, 1.0f);
    }
    if (p.beta != 0.0f) {
      add(to, p.beta);
    }
    OPSMITH_BEST(narrow_float16)(sums, to, at.columns);
    if (p.finish.has_value()) {
      (*p.finish)(0, 1, at.column, at.column + at.columns);
    }
  });
  return true;
}

// Panels of b, widened from those that are packed or from b itself, times the rows of a; what is summed up of
// some rows lies in float32 until it is rounded.
bool multiply_widened(KernelRuntimeContext& context, const Product<Float16>& p,
                      const ProductFunctions<Float16>& with) {
  constexpr int64_t kColumns = kPiecePanels * kPanel;
  const int64_t panel = panel_size<Float16>(p.depth);
  const PackingPieces by(p, 0, panels_of(p.columns), panel);
  const int64_t sum_rows = std::min(kPieceRows, p.rows);
  // Few rows take little of the panels at a time.
  const int64_t most = p.rows <= kFewRows ? std::min(kWidenedDepth, p.depth) : p.depth;
  const int64_t units = kPiecePanels * most * kPanel + (sum_rows + 1) * kColumns;
  const auto rows = widened_rows(context, p);
  const auto memory = rows == nullptr ? Temporary<float>() : temporary<float>(context, by.parts() * units);
  if (memory == nullptr) {
    return false;
  }
  const auto widen_panels = [&](const PackingPiece& at, int64_t k, int64_t depth, float* packed) {
    if (p.packed == nullptr) {
      pack(p, with, at, k, depth, packed);
      return;
    }
    for (int64_t i = 0; i < at.end - at.first; ++i) {
      OPSMITH_BEST(widen_float16)(p.packed + (at.first + i) * panel + k * kPanel, packed + i * depth * kPanel,
                                  depth * kPanel);
    }
  };
  // Part of the depth of `count` rows from `row`.
  const auto multiply_rows = [&](const PackingPiece& at, int64_t row, int64_t count, int64_t k, int64_t depth,
                                 const float* packed, const float* bias, float* sums) {
    Float16* const to = p.c.data + at.batch * p.c.batch + row * p.c.row + at.column;
    for (int64_t i = 0; k == 0 && p.beta != 0.0f && i < count; ++i) {
      OPSMITH_BEST(widen_float16)(to + i * p.c.row, sums + i * kColumns, at.columns);
    }
    Matmul<float> matmul;
    matmul.a = rows + (at.batch * p.rows + row) * p.depth + k;
    matmul.a_row = p.depth;
    matmul.b = packed;
    matmul.b_depth = kPanel;
    matmul.b_panel = depth * kPanel;
    matmul.c = sums;
    matmul.c_row = kColumns;
    matmul.bias = k == 0 ? bias : nullptr;
    matmul.columns = at.columns;
    matmul.depth = depth;
    matmul.alpha = p.alpha;
    matmul.beta = k != 0 ? 1.0f : p.beta;
    with.matmul(matmul, 0, count, 0, panels_of(at.columns));
    for (int64_t i = 0; k + depth == p.depth && i < count; ++i) {
      OPSMITH_BEST(narrow_float16)(sums + i * kColumns, to + i * p.c.row, at.columns);
    }
  };
  by.for_each([&](int64_t slot, const PackingPiece& at) {
    float* const packed = memory + slot * units;
    float* const bias = packed + kPiecePanels * most * kPanel;
    float* const sums = bias + kColumns;
    if (p.bias != nullptr) {
      OPSMITH_BEST(widen_float16)(p.bias + at.column, bias, at.columns);
    }
    for (int64_t k = 0; k < p.depth; k += most) {
      const int64_t depth = std::min(most, p.depth - k);
      widen_panels(at, k, depth, packed);
      for (int64_t row = at.row; row < at.row_end; row += kPieceRows) {
        multiply_rows(at, row, std::min(kPieceRows, at.row_end - row), k, depth, packed,
                      p.bias == nullptr ? nullptr : bias, sums);
      }
    }
    if (p.finish.has_value()) {
      (*p.finish)(at.row, at.row_end, at.column, at.column + at.columns);
    }
  });
  return true;
}

}  // namespace

template <class T>
bool reads_rows(const Product<T>& p) {
  const int64_t size = p.depth * p.columns;
  const bool is_small =
      size <= kUnpackedSize || (p.rows <= kUnpackedManyRows && size < kFewPages && p.b.row % kSamePlace != 0);
  return (p.rows <= kUnpackedRows || (std::is_same_v<T, float> && is_small)) &&
         (p.b.column == 1 || p.columns == 1);
}

template <class T>
bool multiply(KernelRuntimeContext& context, Product<T> p, const ProductFunctions<T>& with) {
  constexpr bool kIsFloat = std::is_same_v<T, float>, kIsFloat16 = std::is_same_v<T, Float16>;
  if (p.batches == 0 || p.rows == 0 || p.columns == 0) {
    return true;
  }
  if (p.depth == 0) {
    fill(p);
    if (p.finish.has_value()) {
      (*p.finish)(0, p.rows, 0, p.columns);
    }
    return true;
  }
  const int64_t panels = panels_of(p.columns), size = panel_size<T>(p.depth);
  if (p.packed != nullptr) {
    if (!kIsFloat && !make_depth_contiguous(context, p)) {
      return false;
    }
    if constexpr (kIsFloat16) {
      return p.rows == 1 ? multiply_packed_row(context, p, with) : multiply_widened(context, p, with);
    } else {
      multiply_panels(p, with, p.packed, kIsFloat ? kPanel : 0, size, 0, 0, panels);
      return true;
    }
  }
  const bool b_has_depth = p.b.row == 1 || p.depth == 1;
  if (p.rows <= kFewRows && b_has_depth && p.row_bias == nullptr) {
    if (!make_depth_contiguous(context, p)) {
      return false;
    }
    multiply_dots(p, with);
    return true;
  }
  const bool is_unpacked = reads_rows(p);
  const bool is_tiled =
      kIsFloat && is_unpacked && p.c.column == 1 && (p.columns >= kPanel || p.rows > kFewRows);
  // Few columns of many rows, as those of a thin b: rather a's rows as b's columns.
  if (p.bias == nullptr && p.columns <= kFewRows && !is_tiled && (p.a.column == 1 || p.depth == 1)) {
    transpose(p);
    if (!make_depth_contiguous(context, p)) {
      return false;
    }
    multiply_dots(p, with);
    return true;
  }
  if (p.c.column != 1 && p.columns != 1) {
    transpose(p);
    return multiply(context, p, with);
  }
  // A large a is read again for every few panels, which takes longer from pages far apart than a copy does.
  const int64_t size_of_a = p.rows * p.depth;
  const bool is_large = size_of_a >= kLargeSize && size_of_a * p.columns >= kLargeProduct;
  if ((!kIsFloat || is_large) && !make_depth_contiguous(context, p)) {
    return false;
  }
  if constexpr (kIsFloat16) {
    return multiply_widened(context, p, with);
  } else {
    if (is_unpacked) {
      // b's rows are read where they are; only the last panels, if they do not fill tiles, are packed.
      const int64_t whole =
          kIsFloat ? p.columns / kPanel : p.columns / (kPanel * kPiecePanels) * kPiecePanels;
      if (whole > 0) {
        multiply_panels(p, with, p.b.data, p.b.row, kPanel, p.b.batch, 0, whole);
      }
      return whole == panels || multiply_packing(context, p, with, whole, panels);
    }
    return multiply_packing(context, p, with, 0, panels);
  }
}

template bool reads_rows(const Product<float>&);
template bool multiply(KernelRuntimeContext&, Product<float>, const ProductFunctions<float>&);
template bool multiply(KernelRuntimeContext&, Product<Bfloat16>, const ProductFunctions<Bfloat16>&);
template bool multiply(KernelRuntimeContext&, Product<Float16>, const ProductFunctions<Float16>&);

}  // namespace opsmith::optimized
