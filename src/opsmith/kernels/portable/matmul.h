// Matrix products for whoever can say how operands are read and results are written: matmul.cpp reads strided
// matrices, convolution.cpp feature maps. Blocks of both operands are packed into panels of the type that is
// summed in, so that one small tile does all the arithmetic; the tile is compiled for several instruction
// sets and chosen at run time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/parallel.h"
#include "wide_type.h"

namespace opsmith::portable {

// Writes `lines` lines of an operand, from `first`, each with `depth` elements from `start` of the dimension
// that is summed over: element p of line i goes to packed[p * panel + i]. Lines are rows of the left operand,
// columns of the right one.
template <class C>
using Pack =
    FunctionRef<void(int64_t first, int64_t lines, int64_t start, int64_t depth, int64_t panel, C* packed)>;

// Takes the sums of row i, from column j; each element of the result comes exactly once. It may change them.
template <class C>
using Finish = FunctionRef<void(int64_t i, int64_t j, C* sums, int64_t count)>;

namespace detail {

// c[i * width + j] = sum over p of a[p * height + i] * b[p * width + j]
template <class C>
using TileFunction = void (*)(int64_t depth, const C* a, const C* b, C* c);

template <class C>
struct MatmulTile {
  TileFunction<C> compute;
  int64_t height;
  int64_t width;
};

#if defined(__GNUC__)
// The accumulators are Height x Vectors registers of Bytes bytes: the numbers below leave room for a row of
// b.
template <class C, int Bytes, int Height, int Vectors>
[[gnu::always_inline]] inline void matmul_tile(int64_t depth, const C* a, const C* b, C* c) {
  typedef C Vector __attribute__((vector_size(Bytes), aligned(alignof(C)), may_alias));
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(C));
  constexpr int kWidth = kLanes * Vectors;
  Vector sum[Height][Vectors] = {};
  for (int64_t p = 0; p < depth; ++p) {
    Vector row[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      row[v] = *reinterpret_cast<const Vector*>(b + p * kWidth + v * kLanes);
    }
    for (int i = 0; i < Height; ++i) {
      for (int v = 0; v < Vectors; ++v) {
        sum[i][v] += a[p * Height + i] * row[v];
      }
    }
  }
  for (int i = 0; i < Height; ++i) {
    for (int v = 0; v < Vectors; ++v) {
      *reinterpret_cast<Vector*>(c + i * kWidth + v * kLanes) = sum[i][v];
    }
  }
}

template <class C>
[[gnu::noinline]] void matmul_tile_baseline(int64_t depth, const C* a, const C* b, C* c) {
  matmul_tile<C, 16, 4, 2>(depth, a, b, c);
}
constexpr int64_t kBaselineHeight = 4;
constexpr int64_t kBaselineBytes = 32;
#else
constexpr int64_t kBaselineHeight = 4;
constexpr int64_t kBaselineBytes = 32;
template <class C>
void matmul_tile_baseline(int64_t depth, const C* a, const C* b, C* c) {
  constexpr int64_t kWidth = kBaselineBytes / sizeof(C);
  std::fill_n(c, kBaselineHeight * kWidth, C(0));
  for (int64_t p = 0; p < depth; ++p) {
    for (int64_t i = 0; i < kBaselineHeight; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        c[i * kWidth + j] += a[p * kBaselineHeight + i] * b[p * kWidth + j];
      }
    }
  }
}
#endif

#if defined(__x86_64__) && defined(__GNUC__)
// noinline: gcc 12 spills the accumulators of an AVX-512 tile that it inlines.
template <class C>
[[gnu::noinline, gnu::target("avx2,fma")]] void matmul_tile_avx2(int64_t depth, const C* a, const C* b,
                                                                 C* c) {
  matmul_tile<C, 32, 6, 2>(depth, a, b, c);
}
template <class C>
[[gnu::noinline, gnu::target("avx512f,avx512dq")]] void matmul_tile_avx512(int64_t depth, const C* a,
                                                                           const C* b, C* c) {
  matmul_tile<C, 64, 6, 4>(depth, a, b, c);
}
#endif

template <class C>
MatmulTile<C> chosen_tile(int64_t n) {
#if defined(__x86_64__) && defined(__GNUC__)
  // A wide tile would be half empty over a narrow result.
  if (n * static_cast<int64_t>(sizeof(C)) > 64 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512dq")) {
    return {matmul_tile_avx512<C>, 6, 256 / static_cast<int64_t>(sizeof(C))};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {matmul_tile_avx2<C>, 6, 64 / static_cast<int64_t>(sizeof(C))};
  }
#endif
  return {matmul_tile_baseline<C>, kBaselineHeight, kBaselineBytes / static_cast<int64_t>(sizeof(C))};
}

// The blocks that are packed at a time, in elements, and the grain size in products.
constexpr int64_t kBlockDepth = 256;
constexpr int64_t kBlockHeight = 1536;
constexpr int64_t kBlockWidth = 1024;
constexpr int64_t kMaxTile = 6 * 64;
constexpr int64_t kGrainOfProducts = 1 << 17;

}  // namespace detail

// How many elements of temporary memory matmul takes.
template <class C>
int64_t matmul_workspace(int64_t m, int64_t n, int64_t k) {
  using namespace detail;
  const MatmulTile<C> tile = chosen_tile<C>(n);
  const int64_t height = ceil_divided(std::min(m, kBlockHeight), tile.height) * tile.height;
  const int64_t width = ceil_divided(std::min(n, kBlockWidth), tile.width) * tile.width;
  return (height + width) * std::min(k, kBlockDepth) + (k > kBlockDepth ? height * width : 0);
}

// The product of an m x k and a k x n matrix. Without elements to sum over, the sums are 0. Long because its
// two steps, packing and multiplying, share every bound of the block that the loops around them name.
template <class C>
[[gnu::noinline]] void matmul(int64_t m, int64_t n, int64_t k, Pack<C> pack_a, Pack<C> pack_b,
                              Finish<C> finish, C* workspace) {
  using namespace detail;
  const MatmulTile<C> tile = chosen_tile<C>(n);
  for (int64_t row = 0; row < m; row += kBlockHeight) {
    const int64_t height = std::min(kBlockHeight, m - row);
    const int64_t a_panels = ceil_divided(height, tile.height);
    for (int64_t column = 0; column < n; column += kBlockWidth) {
      const int64_t width = std::min(kBlockWidth, n - column);
      const int64_t b_panels = ceil_divided(width, tile.width);
      C* const packed_a = workspace;
      C* const packed_b = packed_a + a_panels * tile.height * std::min(k, kBlockDepth);
      C* const totals = packed_b + b_panels * tile.width * std::min(k, kBlockDepth);
      int64_t start = 0;
      do {
        const int64_t depth = std::min(kBlockDepth, k - start);
        const bool first = start == 0;
        const bool last = start + depth == k;
        parallel(a_panels + b_panels,
                 std::max<int64_t>(1, 32768 / (tile.width * std::max<int64_t>(1, depth))),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const bool of_a = i < a_panels;
                     const int64_t index = of_a ? i : i - a_panels;
                     const int64_t panel = of_a ? tile.height : tile.width;
                     const int64_t lines = std::min(panel, (of_a ? height : width) - index * panel);
                     C* const packed = (of_a ? packed_a : packed_b) + index * panel * depth;
                     if (lines < panel) {
                       std::fill_n(packed, panel * depth, C(0));
                     }
                     if (of_a) {
                       pack_a(row + index * panel, lines, start, depth, panel, packed);
                     } else {
                       pack_b(column + index * panel, lines, start, depth, panel, packed);
                     }
                   }
                 });
        const int64_t work = tile.height * tile.width * std::max<int64_t>(1, depth);
        parallel(a_panels * b_panels, grain_size(work, kGrainOfProducts), [&](int64_t begin, int64_t end) {
          alignas(64) C sums[kMaxTile];
          for (int64_t t = begin; t < end; ++t) {
            const int64_t i = t % a_panels;
            const int64_t j = t / a_panels;
            tile.compute(depth, packed_a + i * tile.height * depth, packed_b + j * tile.width * depth, sums);
            const int64_t rows = std::min(tile.height, height - i * tile.height);
            const int64_t columns = std::min(tile.width, width - j * tile.width);
            for (int64_t y = 0; y < rows; ++y) {
              C* const sum = sums + y * tile.width;
              if (!(first && last)) {
                C* const total = totals + (i * tile.height + y) * b_panels * tile.width + j * tile.width;
                for (int64_t x = 0; x < columns; ++x) {
                  sum[x] += first ? C(0) : total[x];
                  total[x] = sum[x];
                }
              }
              if (last) {
                finish(row + i * tile.height + y, column + j * tile.width, sum, columns);
              }
            }
          }
        });
        start += depth;
      } while (start < k);
    }
  }
}

}  // namespace opsmith::portable
