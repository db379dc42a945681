// mm, bmm, addmm, baddbmm and linear, by oneDNN's matmul.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "../common/dtypes.h"
#include "../common/parallel.h"
#include "../common/resize.h"
#include "../common/temporary.h"
#include "computation.h"

namespace opsmith::onednn::native {

namespace {

constexpr const char* kTaken = "takes float32, bfloat16 or float16, all operands the same";

// A batch of matrices; strides in elements.
struct Matrices {
  char* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t column = 0;

  void transpose() { std::swap(row, column); }
};

// out = beta · self + alpha · a b. Where `self` has no data, beta is 0.
struct Product {
  const char* name;
  DataType dtype;
  int64_t batches;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  Matrices a;
  Matrices b;
  Matrices out;
  Matrices self;  // strides are 0 where it is stretched
  float alpha = 1.0f;
  float beta = 0.0f;

  int64_t width() const { return dtype == kF32 ? 4 : 2; }

  void transpose() {
    std::swap(rows, columns);
    std::swap(a, b);
    for (Matrices* each : {&a, &b, &out, &self}) {
      each->transpose();
    }
  }
};

// The last two dimensions, and the one before them if there are three.
Matrices matrices_of(const Tensor& t) {
  const ssize_t last = t.dim() - 1;
  return {static_cast<char*>(t.mutable_data_ptr()), last == 2 ? t.strides()[0] : 0, t.strides()[last - 1],
          t.strides()[last]};
}

// `t` as if it had out's sizes, to which it broadcasts; false with the call rejected where it does not.
bool stretched(KernelRuntimeContext& context, const char* name, const Tensor& t, const Tensor& out,
               Matrices& matrices) {
  OPSMITH_CHECK(context, t.dim() <= out.dim(), InvalidArgument, false,
                "%s: what is added has %d dimensions, and the product %d", name, static_cast<int>(t.dim()),
                static_cast<int>(out.dim()));
  for (ssize_t d = 1; d <= t.dim(); ++d) {
    const auto size = t.sizes()[t.dim() - d], expected = out.sizes()[out.dim() - d];
    OPSMITH_CHECK(context, size == 1 || size == expected, InvalidArgument, false,
                  "%s: what is added does not broadcast to the product: it has %d elements where that has %d",
                  name, static_cast<int>(size), static_cast<int>(expected));
  }
  const int64_t rank = out.dim();
  matrices = {static_cast<char*>(t.mutable_data_ptr()), rank == 3 ? broadcast_stride(t, 0, rank) : 0,
              broadcast_stride(t, rank - 2, rank), broadcast_stride(t, rank - 1, rank)};
  return true;
}

// Strides that say no more than they have to: those of dimensions of one element are what a dense matrix has.
Matrices plain(Matrices m, int64_t batches, int64_t rows, int64_t columns) {
  if (columns == 1 && (rows == 1 || m.row == 1)) {
    m.row = m.column = 1;
  } else if (columns == 1) {
    m.column = 1;
  } else if (rows == 1) {
    m.row = m.column == 1 ? columns : 1;
  }
  if (batches == 1) {
    m.batch = rows * columns;
  }
  return m;
}

// Whether oneDNN's products read it, or write it, where it lies.
bool has_rows_or_columns(const Matrices& m, int64_t rows, int64_t columns) {
  return (m.column == 1 && m.row >= columns) || (m.row == 1 && m.column >= rows);
}

Operand operand(Role role, DataType dtype, const Matrices& m, int64_t batches, int64_t rows,
                int64_t columns) {
  Operand made{role, {dtype, {batches, rows, columns}, {m.batch, m.row, m.column}}, m.data};
  if (batches == 1) {
    made.layout.sizes.erase(0);
    made.layout.strides.erase(0);
  }
  return made;
}

// out = self, both of `width` bytes an element.
void put_self(const Product& p) {
  const int64_t width = p.width();
  parallel(p.batches * p.rows, grain_size(p.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / p.rows, row = i % p.rows;
      const char* from = p.self.data + (batch * p.self.batch + row * p.self.row) * width;
      char* to = p.out.data + (batch * p.out.batch + row * p.out.row) * width;
      if (p.self.column == 1 && p.out.column == 1) {
        std::memmove(to, from, static_cast<size_t>(p.columns * width));
        continue;
      }
      for (int64_t j = 0; j < p.columns; ++j) {
        std::memcpy(to + j * p.out.column * width, from + j * p.self.column * width,
                    static_cast<size_t>(width));
      }
    }
  });
}

template <class T>
void scale(const Product& p) {
  for (int64_t i = 0; i < p.batches * p.rows; ++i) {
    const int64_t at = i / p.rows * p.out.batch + i % p.rows * p.out.row;
    T* const to = reinterpret_cast<T*>(p.out.data) + at;
    for (int64_t j = 0; j < p.columns; ++j) {
      T& element = to[j * p.out.column];
      element = p.beta == 0.0f ? T(0.0f) : static_cast<T>(p.beta * static_cast<float>(element));
    }
  }
}

// Where there is no product to add: out = beta · out.
void scale(const Product& p) {
  if (p.dtype == kF32) {
    scale<float>(p);
  } else if (p.dtype == kBf16) {
    scale<BFloat16>(p);
  } else {
    scale<Half>(p);
  }
}

bool multiply(KernelRuntimeContext& context, const Product& p) {
  Computation computation{p.name,
                          Kind::kMatmul,
                          {operand(kSource, p.dtype, p.a, p.batches, p.rows, p.depth),
                           operand(kWeights, p.dtype, p.b, p.batches, p.depth, p.columns),
                           operand(kResult, p.dtype, p.out, p.batches, p.rows, p.columns)},
                          3};
  computation.alpha = p.alpha;
  computation.beta = p.beta;
  computation.operands[0].is_rearranged = !has_rows_or_columns(p.a, p.rows, p.depth);
  computation.operands[1].is_rearranged = !has_rows_or_columns(p.b, p.depth, p.columns);
  if (p.self.data != nullptr && p.beta == 0.0f) {  // a row, added to each
    const Matrices bias{p.self.data, p.columns, p.columns, 1};
    computation.operands[computation.count++] = operand(kBias, p.dtype, bias, 1, 1, p.columns);
    if (p.batches > 1) {
      Layout& layout = computation.operands[3].layout;
      layout.sizes.insert(0, 1);
      layout.strides.insert(0, p.columns);
    }
  }
  return run(context, computation);
}

bool compute(KernelRuntimeContext& context, Product p) {
  if (p.batches == 0 || p.rows == 0 || p.columns == 0) {
    return true;
  }
  p.a = plain(p.a, p.batches, p.rows, p.depth);
  p.b = plain(p.b, p.batches, p.depth, p.columns);
  p.out = plain(p.out, p.batches, p.rows, p.columns);
  if (p.out.column != 1 && p.out.row == 1) {
    p.transpose();  // oneDNN writes rows
  }
  const bool multiplies = p.depth != 0 && p.alpha != 0.0f;
  const bool is_row = p.self.batch == 0 && (p.self.row == 0 || p.rows == 1) && p.self.column == 1;
  if (multiplies && p.self.data != nullptr && p.alpha == 1.0f && p.beta == 1.0f && is_row &&
      has_rows_or_columns(p.out, p.rows, p.columns)) {
    p.beta = 0.0f;
    return multiply(context, p);
  }
  // Rows of a batch in an odd order: oneDNN writes them elsewhere.
  const Matrices to = p.out;
  Temporary<char> memory;
  if (multiplies && !has_rows_or_columns(p.out, p.rows, p.columns)) {
    memory = temporary<char>(context, p.batches * p.rows * p.columns * p.width());
    if (memory == nullptr) {
      return false;
    }
    p.out = {memory.get(), p.rows * p.columns, p.columns, 1};
  }
  if (p.beta != 0.0f) {
    put_self(p);
  }
  p.self = {};
  if (!multiplies) {
    scale(p);
    return true;
  }
  if (!multiply(context, p)) {
    return false;
  }
  return memory == nullptr || run(context, {p.name,
                                            Kind::kReorder,
                                            {operand(kSource, p.dtype, p.out, p.batches, p.rows, p.columns),
                                             operand(kResult, p.dtype, to, p.batches, p.rows, p.columns)},
                                            2});
}

// The product of matrices, or of batches of them: checked, and `out` resized. False with the call rejected.
bool describe(KernelRuntimeContext& context, const char* name, const Tensor& a, const Tensor& b, Tensor& out,
              ssize_t rank, Product& product) {
  const auto dtype = data_type(out.scalar_type());
  OPSMITH_CHECK(
      context,
      dtype.has_value() && a.scalar_type() == out.scalar_type() && b.scalar_type() == out.scalar_type(),
      NotSupported, false, "%s %s", name, kTaken);
  const bool fits = a.dim() == rank && b.dim() == rank && a.sizes()[rank - 1] == b.sizes()[rank - 2] &&
                    (rank == 2 || a.sizes()[0] == b.sizes()[0]);
  OPSMITH_CHECK(context, fits, InvalidArgument, false, "%s: %s of n × k and k × m have a product of n × m",
                name, rank == 2 ? "matrices" : "batches");
  Dims sizes = sizes_of(a);
  sizes[rank - 1] = b.sizes()[rank - 1];
  if (!resize(context, out, sizes)) {
    return false;
  }
  product = {name,
             *dtype,
             rank == 3 ? sizes[0] : 1,
             sizes[rank - 2],
             sizes[rank - 1],
             a.sizes()[rank - 1],
             matrices_of(a),
             matrices_of(b),
             matrices_of(out),
             {}};
  return true;
}

bool float_of(KernelRuntimeContext& context, const Scalar& number, float& value) {
  const double wide = value_of<double>(number);
  OPSMITH_CHECK(context, !std::isfinite(wide) || std::fabs(wide) <= std::numeric_limits<float>::max(),
                InvalidArgument, false, "value cannot be converted to type float without overflow");
  value = static_cast<float>(wide);
  return true;
}

Tensor& multiply_into(KernelRuntimeContext& context, const char* name, const Tensor& a, const Tensor& b,
                      ssize_t rank, Tensor& out) {
  Product product;
  if (describe(context, name, a, b, out, rank, product)) {
    compute(context, product);
  }
  return out;
}

Tensor& add_product_into(KernelRuntimeContext& context, const char* name, const Tensor& self, const Tensor& a,
                         const Tensor& b, const Scalar& beta, const Scalar& alpha, ssize_t rank,
                         Tensor& out) {
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type(), NotSupported, out, "%s %s", name, kTaken);
  Product product;
  if (describe(context, name, a, b, out, rank, product) &&
      stretched(context, name, self, out, product.self) &&
      (out.numel() == 0 ||
       (float_of(context, beta, product.beta) && float_of(context, alpha, product.alpha)))) {
    if (product.beta == 0.0f) {
      product.self = {};
    }
    compute(context, product);
  }
  return out;
}

}  // namespace

Tensor& mm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  return multiply_into(context, "mm", self, mat2, 2, out);
}

Tensor& bmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  return multiply_into(context, "bmm", self, mat2, 3, out);
}

Tensor& addmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                  const Scalar& beta, const Scalar& alpha, Tensor& out) {
  return add_product_into(context, "addmm", self, mat1, mat2, beta, alpha, 2, out);
}

Tensor& baddbmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& batch1,
                    const Tensor& batch2, const Scalar& beta, const Scalar& alpha, Tensor& out) {
  return add_product_into(context, "baddbmm", self, batch1, batch2, beta, alpha, 3, out);
}

// The result is [..., features] of an input of [..., depth]; of a weight of [depth], [...].
Tensor& linear_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, Tensor& out) {
  const auto dtype = data_type(out.scalar_type());
  OPSMITH_CHECK(context,
                dtype.has_value() && input.scalar_type() == out.scalar_type() &&
                    weight.scalar_type() == out.scalar_type() &&
                    (!bias.has_value() || bias->scalar_type() == out.scalar_type()),
                NotSupported, out, "linear %s", kTaken);
  const bool is_vector = weight.dim() == 1;
  OPSMITH_CHECK(context,
                (weight.dim() == 2 || is_vector) && input.dim() >= 1 &&
                    input.sizes()[input.dim() - 1] == weight.sizes()[weight.dim() - 1],
                InvalidArgument, out, "linear: an input of [..., k] has a weight of [n, k] or [k]");
  const int64_t features = is_vector ? 1 : weight.sizes()[0], depth = weight.sizes()[weight.dim() - 1];
  Dims sizes = sizes_of(input);
  sizes.erase(sizes.rank - 1);
  const int64_t rows = sizes.product();
  if (!is_vector) {
    sizes.push_back(features);
  }
  const bool has_row =
      bias.has_value() && !is_vector && bias->dim() >= 1 && bias->sizes()[bias->dim() - 1] == features;
  OPSMITH_CHECK(context,
                !bias.has_value() || (bias->dim() <= sizes.rank && bias->numel() == (has_row ? features : 1)),
                InvalidArgument, out, "linear: a bias is of [n] or []");
  if (!resize(context, out, sizes) || !are_contiguous(context, {&input, &weight, &out})) {
    return out;
  }
  const auto data = [](const Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); };
  Product product{"linear",
                  *dtype,
                  1,
                  rows,
                  features,
                  depth,
                  {data(input), 0, depth, 1},
                  {data(weight), 0, 1, depth},
                  {data(out), 0, features, 1},
                  {}};
  if (bias.has_value()) {
    product.self = {data(*bias), 0, 0, has_row ? 1 : 0};
    product.beta = 1.0f;
  }
  compute(context, product);
  return out;
}

}  // namespace opsmith::onednn::native
