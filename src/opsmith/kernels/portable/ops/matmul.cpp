// Matrix products: mm, bmm, addmm, baddbmm, linear, dot-like ones among them, for operands of any dim order.
#include <cmath>
#include <optional>
#include <string_view>

#include "../conversion.h"
#include "../../common/resize.h"
#include "../../common/temporary.h"
#include "../common_dtype.h"
#include "../complex_numbers.h"
#include "../matmul.h"
#include "../lanes.h"
#include "../scalar_tensor.h"

namespace opsmith::portable {
namespace {

constexpr char kMm[] = "mm.out";
constexpr char kBmm[] = "bmm.out";
constexpr char kAddmm[] = "addmm.out";
constexpr char kBaddbmm[] = "baddbmm.out";
constexpr char kLinear[] = "linear.out";

// A matrix in memory of any dtype; strides in elements.
struct Matrix {
  char* data;
  int64_t rows;     // stride
  int64_t columns;  // stride

  char* at(int64_t i, int64_t j, int64_t width) const { return data + (i * rows + j * columns) * width; }
  Matrix transposed() const { return {data, columns, rows}; }
};

// out = beta * addend + alpha * a b. beta 0 means that the addend is not read (its NaN do not count).
template <class C>
struct Product {
  int64_t m;
  int64_t n;
  int64_t k;
  Matrix a;
  Matrix b;
  Matrix addend;
  Matrix out;
  C alpha;
  C beta;
  int64_t width;          // of an element of all four
  Convert load;           // to C
  Convert store;          // from C
  bool is_computed_type;  // elements are of type C

  void run(C* workspace) const {
    if (m == 0 || n == 0) {
      return;
    }
    if (n <= kFewRows && n < m) {
      transposed().run(workspace);
    } else if (m <= kFewRows) {
      rows_by_rows();
    } else if (out.columns != 1 && out.rows == 1) {
      transposed().run(workspace);  // so that rows of the result are dense
    } else {
      matmul<C>(
          m, n, k,
          [this](int64_t first, int64_t lines, int64_t start, int64_t depth, int64_t panel, C* packed) {
            pack(a, first, lines, start, depth, panel, packed);
          },
          [this](int64_t first, int64_t lines, int64_t start, int64_t depth, int64_t panel, C* packed) {
            pack(b.transposed(), first, lines, start, depth, panel, packed);
          },
          [this](int64_t i, int64_t j, C* sums, int64_t count) { finish(i, j, sums, count); }, workspace);
    }
  }

  static int64_t workspace(int64_t m, int64_t n, int64_t k) {
    return std::min(m, n) <= kFewRows ? 0
                                      : std::max(matmul_workspace<C>(m, n, k), matmul_workspace<C>(n, m, k));
  }

 private:
  // So few rows that packing the other operand would cost more than it saves.
  static constexpr int64_t kFewRows = 3;
  static constexpr int64_t kLine = 512;
  static constexpr int64_t kStep = 4;

  Product transposed() const {
    Product product = *this;
    std::swap(product.m, product.n);
    product.a = b.transposed();
    product.b = a.transposed();
    product.addend = addend.transposed();
    product.out = out.transposed();
    return product;
  }

  void pack(const Matrix& lines, int64_t first, int64_t count, int64_t start, int64_t depth, int64_t panel,
            C* packed) const {
    if (count == panel) {
      load(lines.at(first, start, width), {depth, panel, lines.columns, lines.rows}, packed);
      return;
    }
    for (int64_t p = 0; p < depth; ++p) {
      load(lines.at(first, start + p, width), {1, count, 0, lines.rows}, packed + p * panel);
    }
  }

  void finish(int64_t i, int64_t j, C* sums, int64_t count) const {
    for (int64_t at = 0; at < count; at += kLine) {
      const int64_t length = std::min(kLine, count - at);
      C* const sum = sums + at;
      if (alpha != C(1)) {
        for (int64_t x = 0; x < length; ++x) {
          sum[x] *= alpha;
        }
      }
      if (beta != C(0)) {
        C addends[kLine];
        load(addend.at(i, j + at, width), {1, length, 0, addend.columns}, addends);
        for (int64_t x = 0; x < length; ++x) {
          sum[x] += beta * addends[x];
        }
      }
      char* const to = out.at(i, j + at, width);
      if (out.columns == 1) {
        store(sum, {1, length, 0, 1}, to);
      } else {
        alignas(64) char block[kLine * sizeof(C)];
        store(sum, {1, length, 0, 1}, block);
        spread(static_cast<size_t>(width), block, to, out.columns, length);
      }
    }
  }

  // Elements of a line of an operand as C: the memory itself where it can be.
  const C* line(const Matrix& matrix, int64_t i, int64_t j, int64_t count, C* buffer) const {
    char* const from = matrix.at(i, j, width);
    if (is_computed_type && matrix.columns == 1) {
      return reinterpret_cast<const C*>(from);
    }
    load(from, {1, count, 0, matrix.columns}, buffer);
    return buffer;
  }

  void dots() const {
    const int64_t work = std::max<int64_t>(1, m * k);
    parallel(n, grain_size(work), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        for (int64_t i = 0; i < m; ++i) {
          C sum = dot(i, j);
          finish(i, j, &sum, 1);
        }
      }
    });
  }

  void rows_by_rows() const {
    if (b.rows == 1 && b.columns != 1) {
      return dots();
    }
    const int64_t work = std::max<int64_t>(1, m * k);
    const int64_t lines = ceil_divided(n, kLine);
    parallel(lines, grain_size(work * kLine), [&](int64_t begin, int64_t end) {
      C left[kFewRows][kLine];
      C right[kStep][kLine];
      C sums[kFewRows][kLine];
      for (int64_t l = begin; l < end; ++l) {
        const int64_t j = l * kLine;
        const int64_t count = std::min(kLine, n - j);
        for (int64_t i = 0; i < m; ++i) {
          std::fill_n(sums[i], count, C(0));
        }
        for (int64_t start = 0; start < k; start += kLine) {
          const int64_t depth = std::min(kLine, k - start);
          const C* rows[kFewRows];
          for (int64_t i = 0; i < m; ++i) {
            rows[i] = line(a, i, start, depth, left[i]);
          }
          int64_t p = 0;
          for (; p + kStep <= depth;
               p += kStep) {  // several at a time, so that sums are loaded and stored less
            const C* values[kStep];
            for (int64_t s = 0; s < kStep; ++s) {
              values[s] = line(b, start + p + s, j, count, right[s]);
            }
            for (int64_t i = 0; i < m; ++i) {
              const C* const factors = rows[i] + p;
              C* const sum = sums[i];
              for (int64_t x = 0; x < count; ++x) {
                sum[x] += factors[0] * values[0][x] + factors[1] * values[1][x] + factors[2] * values[2][x] +
                          factors[3] * values[3][x];
              }
            }
          }
          for (; p < depth; ++p) {
            const C* const values = line(b, start + p, j, count, right[0]);
            for (int64_t i = 0; i < m; ++i) {
              const C factor = rows[i][p];
              C* const sum = sums[i];
              for (int64_t x = 0; x < count; ++x) {
                sum[x] += factor * values[x];
              }
            }
          }
        }
        for (int64_t i = 0; i < m; ++i) {
          finish(i, j, sums[i], count);
        }
      }
    });
  }

  // Row i of a by column j of b.
  C dot(int64_t i, int64_t j) const {
    C left[kLine];
    C right[kLine];
    C sum = 0;
    for (int64_t start = 0; start < k; start += kLine) {
      const int64_t depth = std::min(kLine, k - start);
      const C* const x = line(a, i, start, depth, left);
      const C* const y = line(b.transposed(), j, start, depth, right);
      sum += sum_of<C>(depth, [=](int64_t p) { return x[p] * y[p]; });
    }
    return sum;
  }
};

// A batch of matrices, with a step of 0 where the same one serves all of the batch.
struct Matrices {
  Matrix first;
  int64_t step;

  Matrix at(int64_t batch, int64_t width) const {
    return {first.data + batch * step * width, first.rows, first.columns};
  }
};

Matrices matrices_of(const Tensor& t) {
  const int64_t rank = t.dim();
  return {{static_cast<char*>(t.mutable_data_ptr()), t.strides()[rank - 2], t.strides()[rank - 1]},
          rank == 3 ? t.strides()[0] : 0};
}

// `t` as if it had out's sizes, to which it broadcasts; false, with the call rejected, where it does not.
bool expanded_to(KernelRuntimeContext& context, const Tensor& t, const Tensor& out, Matrices& matrices) {
  int64_t strides[3] = {0, 0, 0};
  const int64_t rank = out.dim();
  const int64_t missing = rank - t.dim();
  OPSMITH_CHECK(
      context, missing >= 0, InvalidArgument, false,
      "The expanded size of the tensor must have at least as many dimensions as the tensor: %d and %d",
      static_cast<int>(rank), static_cast<int>(t.dim()));
  for (int64_t i = 0; i < t.dim(); ++i) {
    const int64_t size = t.sizes()[i];
    const int64_t wanted = out.sizes()[i + missing];
    OPSMITH_CHECK(context, size == wanted || size == 1, InvalidArgument, false,
                  "The expanded size of the tensor (%" PRId64 ") must match the existing size (%" PRId64
                  ") at non-singleton dimension %" PRId64,
                  wanted, size, i + missing);
    strides[3 - rank + i + missing] = size == 1 ? 0 : t.strides()[i];
  }
  matrices = {{static_cast<char*>(t.mutable_data_ptr()), strides[1], strides[2]}, strides[0]};
  return true;
}

// The operands of a product, as batches.
struct Factors {
  int64_t batches;
  int64_t m;
  int64_t n;
  int64_t k;
  Matrices a;
  Matrices b;
  Matrices addend;
  Matrices out;
  Scalar alpha = 1;
  Scalar beta = 0;
};

template <class C>
[[gnu::noinline]] void multiply_as(KernelRuntimeContext& context, const Factors& factors, ScalarType dtype) {
  const int64_t m = factors.m;
  const int64_t n = factors.n;
  const int64_t k = factors.k;
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(dtype));
  const Convert load = conversion(dtype, dtype_of<C>);
  const Convert store = conversion(dtype_of<C>, dtype);
  OPSMITH_CHECK(context, load != nullptr && store != nullptr, NotSupported, ,
                "products of %s are not part of this build", name_of(dtype));
  const auto product = [&](int64_t batch) {
    return Product<C>{m,
                      n,
                      k,
                      factors.a.at(batch, width),
                      factors.b.at(batch, width),
                      factors.addend.at(batch, width),
                      factors.out.at(batch, width),
                      value_of<C>(factors.alpha),
                      value_of<C>(factors.beta),
                      width,
                      load,
                      store,
                      dtype == dtype_of<C>};
  };
  // Small products share threads by the batch, each with its workspace on the stack; others one by one.
  constexpr int64_t kSmall = 65536 / sizeof(C);
  const int64_t workspace = Product<C>::workspace(m, n, k);
  if (workspace <= kSmall) {
    const int64_t work = std::max<int64_t>(1, m * n * std::max<int64_t>(1, k));
    parallel(factors.batches, grain_size(work, detail::kGrainOfProducts), [&](int64_t begin, int64_t end) {
      alignas(64) C own[kSmall];
      for (int64_t batch = begin; batch < end; ++batch) {
        product(batch).run(own);
      }
    });
    return;
  }
  const auto shared = temporary<C>(context, workspace);
  for (int64_t batch = 0; shared != nullptr && batch < factors.batches; ++batch) {
    product(batch).run(shared);
  }
}

template <const char* Name>
void multiply(KernelRuntimeContext& context, const Factors& factors, ScalarType dtype) {
  if (factors.batches * factors.m * factors.n != 0) {
    with_wide_type<Name>(context, dtype, [&](auto type) {
      multiply_as<typename decltype(type)::type>(context, factors, dtype);
    });
  }
}

// The same of complex numbers, without alpha and addend.
template <const char* Name>
void multiply_complex(KernelRuntimeContext& context, const Factors& factors, ScalarType dtype) {
  with_parts<Name>(context, dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int64_t kWidth = sizeof(Complex<T>);
    const auto element = [](const Matrix& matrix, int64_t i, int64_t j) {
      return reinterpret_cast<Complex<T>*>(matrix.at(i, j, kWidth));
    };
    const int64_t work = std::max<int64_t>(1, factors.n * factors.k);
    parallel(factors.batches * factors.m, grain_size(work), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t i = row % factors.m;
        const Matrix a = factors.a.at(row / factors.m, kWidth);
        const Matrix b = factors.b.at(row / factors.m, kWidth);
        for (int64_t j = 0; j < factors.n; ++j) {
          Complex<compute_t<T>> sum{0, 0};
          for (int64_t p = 0; p < factors.k; ++p) {
            sum = sum + load_complex(element(a, i, p)) * load_complex(element(b, p, j));
          }
          store_complex(element(factors.out.at(row / factors.m, kWidth), i, j), sum);
        }
      }
    });
  });
}

bool of_one_dtype(KernelRuntimeContext& context, const char* name, const Tensor& a, const Tensor& b) {
  OPSMITH_CHECK(context, a.scalar_type() != ScalarType::Bool, NotSupported, false,
                "\"%s\" not implemented for 'Bool'", name);
  OPSMITH_CHECK(context, a.scalar_type() == b.scalar_type(), InvalidArgument, false,
                "%s: expected operands to have the same dtype, but got: %s != %s", name,
                name_of(a.scalar_type()), name_of(b.scalar_type()));
  return true;
}

// The product of matrices or batches of them, with what is added to it where there is an addend.
template <const char* Name>
Tensor& product(KernelRuntimeContext& context, const Tensor* addend, const Tensor& a, const Tensor& b,
                const Scalar& beta, const Scalar& alpha, int64_t rank, Tensor& out) {
  OPSMITH_CHECK(context, a.dim() == rank && b.dim() == rank, InvalidArgument, out,
                "%s expects %d-dimensional operands, but got %d and %d dimensions", Name,
                static_cast<int>(rank), static_cast<int>(a.dim()), static_cast<int>(b.dim()));
  const int64_t m = a.sizes()[rank - 2];
  const int64_t k = a.sizes()[rank - 1];
  const int64_t n = b.sizes()[rank - 1];
  OPSMITH_CHECK(context, b.sizes()[rank - 2] == k && (rank == 2 || a.sizes()[0] == b.sizes()[0]),
                InvalidArgument, out,
                "%s: shapes cannot be multiplied (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ")", Name,
                m, k, static_cast<int64_t>(b.sizes()[rank - 2]), n);
  if (!of_one_dtype(context, Name, a, b) || !of_one_dtype(context, Name, a, out) ||
      (addend != nullptr && !of_one_dtype(context, Name, *addend, a))) {
    return out;
  }
  Dims sizes = sizes_of(a);
  sizes[rank - 1] = n;
  if (!resize(context, out, sizes)) {
    return out;
  }
  Factors factors{rank == 2 ? 1 : sizes[0], m, n, k, matrices_of(a), matrices_of(b), matrices_of(out),
                  matrices_of(out)};
  factors.alpha = alpha;
  if constexpr (std::string_view(Name) == kBmm) {
    if (is_complex(out)) {
      multiply_complex<Name>(context, factors, out.scalar_type());
      return out;
    }
  }
  const bool multiplies = out.numel() != 0 && k != 0;
  const bool is_half = out.scalar_type() == ScalarType::Half || out.scalar_type() == ScalarType::BFloat16;
  const ScalarType held = is_half ? ScalarType::Float : out.scalar_type();
  if (multiplies && !in_executorch() && !(fits(context, alpha, held) && fits(context, beta, held))) {
    return out;
  }
  if (addend != nullptr) {
    if (!expanded_to(context, *addend, out, factors.addend)) {
      return out;
    }
    factors.beta = beta;
  }
  multiply<Name>(context, factors, out.scalar_type());
  return out;
}

}  // namespace

namespace native {

Tensor& mm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  return product<kMm>(context, nullptr, self, mat2, 0, 1, 2, out);
}

Tensor& bmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  return product<kBmm>(context, nullptr, self, mat2, 0, 1, 3, out);
}

Tensor& addmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                  const Scalar& beta, const Scalar& alpha, Tensor& out) {
  return product<kAddmm>(context, &self, mat1, mat2, beta, alpha, 2, out);
}

Tensor& baddbmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& batch1,
                    const Tensor& batch2, const Scalar& beta, const Scalar& alpha, Tensor& out) {
  return product<kBaddbmm>(context, &self, batch1, batch2, beta, alpha, 3, out);
}

// input (..., k), contiguous by the manifest, is one matrix of as many rows as there are; weight is (n, k) or
// (k).
Tensor& linear_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, Tensor& out) {
  OPSMITH_CHECK(context, input.dim() >= 1 && (weight.dim() == 1 || weight.dim() == 2), InvalidArgument, out,
                "linear expects an input of at least 1 dimension and a weight of 1 or 2, but got %d and %d",
                static_cast<int>(input.dim()), static_cast<int>(weight.dim()));
  Dims sizes = sizes_of(input);
  const int64_t k = sizes[sizes.rank - 1];
  const int64_t m = sizes.product(0, sizes.rank - 1);
  const bool vector = weight.dim() == 1;
  const int64_t n = vector ? 1 : weight.sizes()[0];
  OPSMITH_CHECK(context, weight.sizes()[weight.dim() - 1] == k, InvalidArgument, out,
                "linear: input and weight have different numbers of features (%" PRId64 " and %d)", k,
                static_cast<int>(weight.sizes()[weight.dim() - 1]));
  if (!of_one_dtype(context, "linear", input, weight) || !of_one_dtype(context, "linear", input, out) ||
      !are_contiguous(context, {&input, &out})) {
    return out;
  }
  if (vector) {
    sizes.erase(sizes.rank - 1);
  } else {
    sizes[sizes.rank - 1] = n;
  }
  if (!resize(context, out, sizes)) {
    return out;
  }
  const auto data = [](const Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); };
  const Matrix result{data(out), n, 1};
  Factors factors{1,
                  m,
                  n,
                  k,
                  {{data(input), k, 1}, 0},
                  {{data(weight), weight.strides()[weight.dim() - 1], vector ? 0 : weight.strides()[0]}, 0},
                  {result, 0},
                  {result, 0}};
  if (bias.has_value()) {
    OPSMITH_CHECK(context, bias->dim() <= 1 && (bias->numel() == n || bias->numel() == 1), InvalidArgument,
                  out, "linear expects a bias of %" PRId64 " elements, but got %d", n,
                  static_cast<int>(bias->numel()));
    if (!of_one_dtype(context, "linear", input, *bias)) {
      return out;
    }
    factors.addend = {{data(*bias), 0, bias->numel() == n && n != 1 ? 1 : 0}, 0};
    factors.beta = 1;
  }
  multiply<kLinear>(context, factors, out.scalar_type());
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
