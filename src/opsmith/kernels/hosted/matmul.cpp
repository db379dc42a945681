// Matrix products: mm, addmm, bmm, baddbmm, for operands of any strides. Blocks of both operands are packed
// into panels of the accumulating type (float for Half and BFloat16), so that one small tile, compiled for
// each instruction set and chosen at load, does all the arithmetic.
#include <opsmith/element_types.h>
#include <opsmith/host_access.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace opsmith::hosted {
namespace {

// A matrix in host memory: element (i, j) is data[i * rows + j * columns].
template <class T>
struct Matrix {
  T* data;
  int64_t rows;
  int64_t columns;

  T& at(int64_t i, int64_t j) const { return data[i * rows + j * columns]; }
  Matrix from(int64_t i, int64_t j) const { return {&at(i, j), rows, columns}; }
  Matrix transposed() const { return {data, columns, rows}; }
};

// c[kHeight][width] = sum over k of a[k][kHeight] x b[k][width], all dense; `c` is overwritten.
template <class C>
using TileFunction = void (*)(int64_t k, const C* a, const C* b, C* c);

template <class C>
struct Tile {
  TileFunction<C> compute;
  int64_t height;
  int64_t width;
};

// The accumulators are Height x Vectors registers of Bytes bytes: gcc keeps them in registers as long as
// there are that many, which is what the numbers below are chosen for.
template <class C, int Bytes, int Height, int Vectors>
[[gnu::always_inline]] inline void tile(int64_t k, const C* a, const C* b, C* c) {
  typedef C Vector __attribute__((vector_size(Bytes), aligned(alignof(C)), may_alias));
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(C));
  constexpr int kWidth = kLanes * Vectors;
  Vector sum[Height][Vectors] = {};
  for (int64_t p = 0; p < k; ++p) {
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
[[gnu::noinline]] void tile_baseline(int64_t k, const C* a, const C* b, C* c) {
  tile<C, 16, 4, 2>(k, a, b, c);
}

#if defined(__x86_64__) && defined(__GNUC__)
// noinline: gcc 12 spills the accumulators of an inlined AVX-512 tile.
template <class C>
[[gnu::noinline, gnu::target("avx2,fma")]] void tile_avx2(int64_t k, const C* a, const C* b, C* c) {
  tile<C, 32, 6, 2>(k, a, b, c);
}
template <class C>
[[gnu::noinline, gnu::target("avx512f,avx512dq")]] void tile_avx512(int64_t k, const C* a, const C* b, C* c) {
  tile<C, 64, 6, 4>(k, a, b, c);
}
#endif

template <class C>
Tile<C> choose_tile() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    return {tile_avx512<C>, 6, 4 * 64 / sizeof(C)};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {tile_avx2<C>, 6, 2 * 32 / sizeof(C)};
  }
#endif
  return {tile_baseline<C>, 4, 2 * 16 / sizeof(C)};
}

// Sizes of the blocks, in elements: a panel of B of kDepth rows stays in the first-level cache while tiles
// pass over it, a block of A of kHeight rows in the second.
constexpr int64_t kDepth = 256;
constexpr int64_t kHeight = 96;
constexpr int64_t kWidth = 1024;
constexpr int64_t kMaxTile = 6 * 64;

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// `lines` lines of `depth` elements in panels of `panel` lines, dense in the order in which a tile reads
// them; the last panel is filled up with zeros. lines.at(i, p): element p of line i.
template <class T, class C>
void pack(const Matrix<T>& lines, int64_t count, int64_t depth, int64_t panel, C* packed) {
  for (int64_t first = 0; first < count; first += panel, packed += panel * depth) {
    const int64_t height = std::min(panel, count - first);
    if (height < panel) {
      std::fill_n(packed, panel * depth, C(0));
    }
    const Matrix<T> part = lines.from(first, 0);
    if (part.rows == 1) {
      for (int64_t p = 0; p < depth; ++p) {
        const T* const from = part.data + p * part.columns;
        for (int64_t i = 0; i < height; ++i) {
          packed[p * panel + i] = load_element(from + i);
        }
      }
    } else {
      for (int64_t i = 0; i < height; ++i) {
        const T* const from = part.data + i * part.rows;
        for (int64_t p = 0; p < depth; ++p) {
          packed[p * panel + i] = load_element(from + p * part.columns);
        }
      }
    }
  }
}

// Uninitialised memory for panels, aligned to a cache line.
template <class C>
class Panels {
 public:
  explicit Panels(int64_t elements)
      : data_(static_cast<C*>(::operator new(static_cast<size_t>(elements) * sizeof(C), kAlignment))) {}
  ~Panels() { ::operator delete(data_, kAlignment); }
  Panels(const Panels&) = delete;
  Panels& operator=(const Panels&) = delete;
  C* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  C* data_;
};

// c = a b for an m x k and a k x n matrix. Calls finish(i, j, sum, first) for every element of c and every
// block of k in turn, `first` telling whether it is the first block: what is done with a sum is the caller's.
template <class T, class C, class Finish>
void multiply(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b,
              bool threaded, const Finish& finish) {
  static const Tile<C> best = choose_tile<C>();
  const Tile<C> tile = best;
  Panels<C> packed_b(round_up(std::min(n, kWidth), tile.width) * std::min(k, kDepth));
  for (int64_t column = 0; column < n; column += kWidth) {
    const int64_t width = std::min(kWidth, n - column);
    for (int64_t start = 0; start < k; start += kDepth) {
      const int64_t depth = std::min(kDepth, k - start);
      pack<const T, C>(b.from(start, column).transposed(), width, depth, tile.width, packed_b.data());
      const auto block_of_rows = [&](int64_t row) {
        const int64_t height = std::min(kHeight, m - row);
        Panels<C> packed_a(round_up(height, tile.height) * depth);
        pack<const T, C>(a.from(row, start), height, depth, tile.height, packed_a.data());
        alignas(64) C sums[kMaxTile];
        for (int64_t j = 0; j < width; j += tile.width) {
          for (int64_t i = 0; i < height; i += tile.height) {
            tile.compute(depth, packed_a.data() + i * depth, packed_b.data() + j * depth, sums);
            const int64_t rows = std::min(tile.height, height - i);
            const int64_t columns = std::min(tile.width, width - j);
            for (int64_t y = 0; y < rows; ++y) {
              finish(row + i + y, column + j, sums + y * tile.width, columns, start == 0);
            }
          }
        }
      };
      const int64_t blocks = (m + kHeight - 1) / kHeight;
      const int64_t grain = threaded ? std::max<int64_t>(1, 65536 / (kHeight * depth)) : blocks;
      at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          block_of_rows(block * kHeight);
        }
      });
    }
  }
}

// out = beta addend + alpha a b, where beta 0 means that the addend is not read (ATen: its NaN do not count).
template <class T>
struct Product {
  using C = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;

  Matrix<const T> a;
  Matrix<const T> b;
  Matrix<const T> addend;
  Matrix<T> out;
  int64_t m;
  int64_t n;
  int64_t k;
  C alpha;
  C beta;

  void run(bool threaded) const {
    if (m == 0 || n == 0) {
      return;
    }
    if (out.rows == 1 && out.columns != 1) {
      return transposed().run(threaded);  // so that rows of the result are dense
    }
    if (k == 0) {
      const C zero[1] = {0};
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          begin_row(i, j, zero, 1);
        }
      }
    } else if (k <= kDepth || std::is_same_v<T, C>) {
      multiply<T, C>(m, n, k, a, b, threaded,
                     [this](int64_t i, int64_t j, const C* sums, int64_t count, bool first) {
                       if (first) {
                         begin_row(i, j, sums, count);
                       } else {
                         for (int64_t x = 0; x < count; ++x) {
                           T* const to = &out.at(i, j + x);
                           store_element(to, static_cast<C>(load_element(to) + alpha * sums[x]));
                         }
                       }
                     });
    } else {
      // Partial sums are kept in the accumulating type until the last block of k.
      std::vector<C> sum(static_cast<size_t>(m * n));
      multiply<T, C>(m, n, k, a, b, threaded, [&](int64_t i, int64_t j, const C* sums, int64_t count, bool) {
        C* const to = sum.data() + i * n + j;
        for (int64_t x = 0; x < count; ++x) {
          to[x] += sums[x];
        }
      });
      for (int64_t i = 0; i < m; ++i) {
        begin_row(i, 0, sum.data() + i * n, n);
      }
    }
  }

 private:
  Product transposed() const {
    return {b.transposed(), a.transposed(), addend.transposed(), out.transposed(), n, m, k, alpha, beta};
  }

  // Elements (i, j) to (i, j + count - 1) of the result, with the addend.
  void begin_row(int64_t i, int64_t j, const C* sums, int64_t count) const {
    if (beta == C(0)) {
      for (int64_t x = 0; x < count; ++x) {
        store_element(&out.at(i, j + x), static_cast<C>(alpha * sums[x]));
      }
    } else {
      for (int64_t x = 0; x < count; ++x) {
        store_element(&out.at(i, j + x),
                      static_cast<C>(beta * load_element(&addend.at(i, j + x)) + alpha * sums[x]));
      }
    }
  }
};

void check_same_dtype(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", a.scalar_type(),
              " != ", b.scalar_type(), ". Convert one of them");
}

// The last two dimensions of a tensor as a matrix.
template <class T>
Matrix<T> matrix(const at::Tensor& t, int64_t batch = 0) {
  const int64_t rank = t.dim();
  return {host_data<T>(t) + (rank == 3 ? batch * t.stride(0) : 0), t.stride(rank - 2), t.stride(rank - 1)};
}

// The operands are matrices or batches of them; `addend` has out's shape, or is out itself with beta 0.
void products(const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha, const at::Tensor& out) {
  check_same_dtype(a, b);
  TORCH_CHECK(addend.scalar_type() == a.scalar_type() && out.scalar_type() == a.scalar_type(),
              "self and mat2 must have the same dtype, but got ", addend.scalar_type(), " and ",
              a.scalar_type(), ". Convert one of them");
  if (out.numel() == 0) {
    return;
  }
  with_dtype(Numeric{}, out.scalar_type(), [&]<class T>() {
    using C = typename Product<T>::C;
    const int64_t batches = out.dim() == 3 ? out.size(0) : 1;
    const auto one = [&](int64_t batch, bool threaded) {
      Product<T>{matrix<const T>(a, batch),
                 matrix<const T>(b, batch),
                 matrix<const T>(addend, batch),
                 matrix<T>(out, batch),
                 out.size(-2),
                 out.size(-1),
                 a.size(-1),
                 alpha.to<C>(),
                 beta.to<C>()}
          .run(threaded);
    };
    if (batches == 1) {
      return one(0, true);
    }
    const int64_t work = std::max<int64_t>(1, out.size(-2) * out.size(-1) * a.size(-1));
    at::parallel_for(0, batches, std::max<int64_t>(1, 65536 / work), [&](int64_t begin, int64_t end) {
      for (int64_t batch = begin; batch < end; ++batch) {
        one(batch, false);
      }
    });
  });
}

}  // namespace

void mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  products(out, self, mat2, 0, 1, out);
}

void bmm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  products(out, self, mat2, 0, 1, out);
}

void addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
           const at::Scalar& alpha, const at::Tensor& out) {
  products(*at::expand_size(self, out.sizes(), "addmm"), mat1, mat2, beta, alpha, out);
}

void baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
             const at::Scalar& beta, const at::Scalar& alpha, const at::Tensor& out) {
  products(*at::expand_size(self, out.sizes(), "baddbmm"), batch1, batch2, beta, alpha, out);
}

}  // namespace opsmith::hosted
