// mm, bmm, addmm, linear, and linear with weights that are packed ahead.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "../common/resize.h"
#include "../common/temporary.h"
#include "activation.h"
#include "by_dtype.h"
#include "float_functions.h"
#include "strided_matmul.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

// The last two dimensions, and the one before them if there are three.
template <class T>
Matrix<const T> matrix(const Tensor& tensor) {
  const auto last = tensor.dim() - 1;
  const T* const data = static_cast<const T*>(tensor.const_data_ptr());
  return {data, tensor.strides()[last - 1], tensor.strides()[last], last == 2 ? tensor.strides()[0] : 0};
}

template <class T>
Matrix<T> matrix(Tensor& tensor) {
  const Matrix<const T> constant = matrix<T>(static_cast<const Tensor&>(tensor));
  return {static_cast<T*>(tensor.mutable_data_ptr()), constant.row, constant.column, constant.batch};
}

// Calls compute with simd's functions of the dtype; false where no selected program uses it. `name` is the
// operator's.
#define OPSMITH_BY_DTYPE(name, dtype, compute)                                                       \
  if ((dtype) == ScalarType::Float) {                                                                \
    if constexpr (::opsmith::selected(name, ScalarType::Float)) {                                    \
      compute(ProductFunctions<float>{OPSMITH_BEST(matmul_float), OPSMITH_BEST(dots_float),          \
                                      OPSMITH_BEST(pack_float)});                                    \
    }                                                                                                \
  } else if ((dtype) == ScalarType::BFloat16) {                                                      \
    if constexpr (::opsmith::selected(name, ScalarType::BFloat16)) {                                 \
      compute(ProductFunctions<Bfloat16>{OPSMITH_BEST(matmul_bfloat16), OPSMITH_BEST(dots_bfloat16), \
                                         OPSMITH_BEST(pack_bfloat16)});                              \
    }                                                                                                \
  } else if constexpr (::opsmith::selected(name, ScalarType::Half)) {                                \
    compute(ProductFunctions<Float16>{OPSMITH_BEST(matmul_float), OPSMITH_BEST(dots_float16),        \
                                      OPSMITH_BEST(pack_float16), OPSMITH_BEST(row_float16)});       \
  }

// The product of the last two dimensions, with those before them as batches.
template <class T>
Product<T> product_of(const Tensor& a, const Tensor& b, Tensor& c) {
  Product<T> product;
  product.batches = c.dim() == 3 ? c.sizes()[0] : 1;
  product.rows = c.sizes()[c.dim() - 2];
  product.columns = c.sizes()[c.dim() - 1];
  product.depth = a.sizes()[a.dim() - 1];
  product.a = matrix<T>(a);
  product.b = matrix<T>(b);
  product.c = matrix<T>(c);
  return product;
}

bool have_one_dtype(const Tensor& a, const Tensor& b, const Tensor& c) {
  return is_taken(a.scalar_type()) && a.scalar_type() == b.scalar_type() &&
         a.scalar_type() == c.scalar_type();
}

// c[i][j] = beta · self, which broadcasts to c; where self is c itself, in place.
template <class T>
void put_scaled(const Tensor& self, float beta, Tensor& out) {
  const auto affine = OPSMITH_BEST_OF(T, affine);
  const int64_t rows = out.sizes()[0], columns = out.sizes()[1];
  const auto stride = [&](int64_t from_end) -> int64_t {
    const int64_t dim = self.dim() - from_end;
    return dim < 0 || self.sizes()[dim] == 1 ? 0 : self.strides()[dim];
  };
  const int64_t row_stride = stride(2), column_stride = stride(1);
  const T* const from = static_cast<const T*>(self.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t out_row = out.strides()[0], out_column = out.strides()[1];
  parallel(rows, row_grain_size(columns), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const x = from + i * row_stride;
      T* const y = to + i * out_row;
      if (column_stride == 1 && out_column == 1) {
        affine(x, beta, -0.0f, y, columns, false);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) {
        affine(x + j * column_stride, beta, -0.0f, y + j * out_column, 1, false);
      }
    }
  });
}

// Of the last two dimensions one has neighbours in memory, as every result has that is no batch in an odd
// order.
bool has_rows_or_columns(const Tensor& out) {
  const auto last = out.dim() - 1;
  const auto is_next = [&](ssize_t dim) { return out.strides()[dim] == 1 || out.sizes()[dim] == 1; };
  return is_next(last) || is_next(last - 1);
}

// Whether a float holds the number, or as good as does.
bool fits_float(const Scalar& number) {
  const double value = value_of<double>(number);
  return !std::isfinite(value) || std::fabs(value) <= std::numeric_limits<float>::max();
}

template <class With>
using ElementOf = typename std::decay_t<With>::Element;

}  // namespace

Tensor& mm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  OPSMITH_CHECK(context, have_one_dtype(self, mat2, out), NotSupported, out,
                "mm takes float32, bfloat16 or float16, both operands the same");
  OPSMITH_CHECK(context,
                self.dim() == 2 && mat2.dim() == 2 && self.sizes()[1] == mat2.sizes()[0] &&
                    resize(context, out, {self.sizes()[0], mat2.sizes()[1]}),
                InvalidArgument, out, "mm: matrices of n × k and k × m have a product of n × m");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    multiply<T>(context, product_of<T>(self, mat2, out), with);
  };
  OPSMITH_BY_DTYPE("mm.out", out.scalar_type(), compute)
  return out;
}

Tensor& bmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat2, Tensor& out) {
  OPSMITH_CHECK(context, have_one_dtype(self, mat2, out), NotSupported, out,
                "bmm takes float32, bfloat16 or float16, both operands the same");
  OPSMITH_CHECK(context,
                self.dim() == 3 && mat2.dim() == 3 && self.sizes()[0] == mat2.sizes()[0] &&
                    self.sizes()[2] == mat2.sizes()[1] &&
                    resize(context, out, {self.sizes()[0], self.sizes()[1], mat2.sizes()[2]}),
                InvalidArgument, out, "bmm: batches of n × k and k × m have a product of n × m");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    Product<T> product = product_of<T>(self, mat2, out);
    if (has_rows_or_columns(out)) {
      multiply<T>(context, product, with);
      return;
    }
    const Matrix<T> to = product.c;
    const auto from = temporary<T>(context, out.numel());
    if (from == nullptr) {
      return;
    }
    product.c = {from, product.columns, 1, product.rows * product.columns};
    multiply<T>(context, product, with);
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t row = i / product.columns;
      to.data[row / product.rows * to.batch + row % product.rows * to.row + i % product.columns * to.column] =
          from[i];
    }
  };
  OPSMITH_BY_DTYPE("bmm.out", out.scalar_type(), compute)
  return out;
}

Tensor& addmm_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                  const Scalar& beta, const Scalar& alpha, Tensor& out) {
  OPSMITH_CHECK(context, have_one_dtype(mat1, mat2, out) && self.scalar_type() == out.scalar_type(),
                NotSupported, out, "addmm takes float32, bfloat16 or float16, all operands the same");
  OPSMITH_CHECK(context,
                mat1.dim() == 2 && mat2.dim() == 2 && mat1.sizes()[1] == mat2.sizes()[0] &&
                    resize(context, out, {mat1.sizes()[0], mat2.sizes()[1]}),
                InvalidArgument, out, "addmm: matrices of n × k and k × m have a product of n × m");
  for (ssize_t d = 1; d <= self.dim(); ++d) {
    const auto size = self.sizes()[self.dim() - d];
    OPSMITH_CHECK(context, d <= 2 && (size == 1 || size == out.sizes()[2 - d]), InvalidArgument, out,
                  "addmm: what is added does not broadcast to the product");
  }
  const bool multiplies = out.numel() != 0 && mat1.sizes()[1] != 0;
  OPSMITH_CHECK(context, !multiplies || (fits_float(beta) && fits_float(alpha)), InvalidArgument, out,
                "value cannot be converted to type float without overflow");
  const float factor = static_cast<float>(value_of<double>(beta));
  const bool is_bias = factor == 1.0f && value_of<double>(alpha) == 1.0 && out.strides()[1] == 1 &&
                       self.dim() >= 1 && self.numel() == out.sizes()[1] &&
                       self.sizes()[self.dim() - 1] == out.sizes()[1] && self.strides()[self.dim() - 1] == 1;
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    // A scaled `self` is rounded, which of short floating point is for the end.
    const bool in_product = !std::is_same_v<T, float> && multiplies;
    const bool accumulates = factor != 0.0f && !is_bias;
    if (accumulates) {
      put_scaled<T>(self, in_product ? 1.0f : factor, out);
    }
    Product<T> product = product_of<T>(mat1, mat2, out);
    product.bias = is_bias ? static_cast<const T*>(self.const_data_ptr()) : nullptr;
    product.alpha = static_cast<float>(value_of<double>(alpha));
    product.beta = !accumulates ? 0.0f : in_product ? factor : 1.0f;
    multiply<T>(context, product, with);
  };
  OPSMITH_BY_DTYPE("addmm.out", out.scalar_type(), compute)
  return out;
}

namespace {

// input is contiguous, of [..., depth]; what `weight` is the caller says.
template <class T>
Product<T> linear_product(KernelRuntimeContext& context, const Tensor& input, int64_t features,
                          const std::optional<Tensor>& bias, Tensor& out) {
  Product<T> product;
  product.rows = out.numel() / (features == 0 ? 1 : features);
  product.columns = features;
  product.depth = input.sizes()[input.dim() - 1];
  product.a = {static_cast<const T*>(input.const_data_ptr()), product.depth, 1, 0};
  product.c = {static_cast<T*>(out.mutable_data_ptr()), features, 1, 0};
  product.bias = bias.has_value() ? static_cast<const T*>(bias->const_data_ptr()) : nullptr;
  if (bias.has_value() && bias->numel() != features) {
    product.repeated = temporary<T>(context, features);
    if (product.repeated != nullptr) {
      std::fill_n(product.repeated.get(), features, *product.bias);
    }
    product.bias = product.repeated;
  }
  return product;
}

bool is_linear(KernelRuntimeContext& context, const Tensor& input, int64_t depth, int64_t features,
               bool is_vector, const std::optional<Tensor>& bias, Tensor& out) {
  Dims sizes = sizes_of(input);
  if (sizes.rank < 1 || sizes[sizes.rank - 1] != depth) {
    return false;
  }
  if (is_vector) {
    sizes.erase(sizes.rank - 1);
  } else {
    sizes[sizes.rank - 1] = features;
  }
  if (bias.has_value()) {
    const auto rank = bias->dim();
    const bool is_row = rank >= 1 && !is_vector && bias->sizes()[rank - 1] == features;
    if (rank > sizes.rank || bias->numel() != (is_row ? features : 1)) {
      return false;
    }
  }
  return resize(context, out, sizes);
}

}  // namespace

Tensor& linear_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, Tensor& out) {
  OPSMITH_CHECK(
      context,
      have_one_dtype(input, weight, out) && (!bias.has_value() || bias->scalar_type() == out.scalar_type()),
      NotSupported, out, "linear takes float32, bfloat16 or float16, all operands the same");
  const bool is_vector = weight.dim() == 1;
  OPSMITH_CHECK(context, weight.dim() == 2 || is_vector, InvalidArgument, out,
                "linear: the weight has %d dimensions", static_cast<int>(weight.dim()));
  const int64_t features = is_vector ? 1 : weight.sizes()[0];
  const int64_t depth = weight.sizes()[weight.dim() - 1];
  OPSMITH_CHECK(
      context, is_linear(context, input, depth, features, is_vector, bias, out), InvalidArgument, out,
      "linear: an input of [..., k] has a weight of [n, k] and a bias of [n] or [], or of [k] and []");
  if (!are_contiguous(context, {&input, &weight, &out})) {
    return out;
  }
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    Product<T> product = linear_product<T>(context, input, features, bias, out);
    product.b = {static_cast<const T*>(weight.const_data_ptr()), 1, depth, 0};
    multiply<T>(context, product, with);
  };
  OPSMITH_BY_DTYPE("linear.out", out.scalar_type(), compute)
  return out;
}

// The panels of a linear's weight: of [features, depth] a tensor of [⌈features/16⌉, depth, 16], or for
// bfloat16 [⌈features/16⌉, ⌈depth/2⌉, 32].
Tensor& pack_linear_weight_out(KernelRuntimeContext& context, const Tensor& weight, Tensor& out) {
  OPSMITH_CHECK(context, is_taken(weight.scalar_type()) && weight.scalar_type() == out.scalar_type(),
                NotSupported, out, "pack_linear_weight takes float32, bfloat16 or float16");
  OPSMITH_CHECK(context, weight.dim() == 2, InvalidArgument, out,
                "pack_linear_weight: a weight is [features, depth]");
  const int64_t features = weight.sizes()[0], depth = weight.sizes()[1], panels = panels_of(features);
  const bool is_pairs = weight.scalar_type() == ScalarType::BFloat16;
  OPSMITH_CHECK(
      context,
      resize(context, out, {panels, is_pairs ? (depth + 1) / 2 : depth, is_pairs ? 2 * kPanel : kPanel}),
      InvalidArgument, out, "pack_linear_weight: the result has another shape");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    const Matrix<const T> from = matrix<T>(weight);
    T* const to = static_cast<T*>(out.mutable_data_ptr());
    parallel(panels, row_grain_size(panel_size<T>(depth)), [=, &with](int64_t begin, int64_t end) {
      const int64_t column = begin * kPanel;
      if constexpr (std::is_same_v<T, Float16>) {
        for (int64_t i = column; i < end * kPanel; ++i) {
          for (int64_t k = 0; k < depth; ++k) {
            to[(i / kPanel * depth + k) * kPanel + i % kPanel] =
                i < features ? from.data[i * from.row + k * from.column] : T{};
          }
        }
      } else {
        with.pack(from.data + column * from.row, from.column, from.row, depth,
                  std::min(features, end * kPanel) - column, to + begin * panel_size<T>(depth));
      }
    });
  };
  OPSMITH_BY_DTYPE("optimized::pack_linear_weight.out", out.scalar_type(), compute)
  return out;
}

Tensor& linear_packed_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& packed,
                          const std::optional<Tensor>& bias, int64_t out_features,
                          const std::optional<Tensor>& other, std::string_view activation, Tensor& out) {
  OPSMITH_CHECK(context,
                have_one_dtype(input, packed, out) &&
                    (!bias.has_value() || bias->scalar_type() == out.scalar_type()) &&
                    (!other.has_value() || other->scalar_type() == out.scalar_type()),
                NotSupported, out, "linear_packed takes float32, bfloat16 or float16, all operands the same");
  const bool is_pairs = packed.scalar_type() == ScalarType::BFloat16;
  const int64_t depth = input.dim() < 1 ? 0 : input.sizes()[input.dim() - 1];
  OPSMITH_CHECK(context,
                packed.dim() == 3 && out_features >= 0 && packed.sizes()[0] == panels_of(out_features) &&
                    packed.sizes()[1] == (is_pairs ? (depth + 1) / 2 : depth) &&
                    packed.sizes()[2] == (is_pairs ? 2 * kPanel : kPanel) &&
                    is_linear(context, input, depth, out_features, false, bias, out),
                InvalidArgument, out,
                "linear_packed: the weight was packed for other features, or another dtype");
  OPSMITH_CHECK(context, !other.has_value() || other->sizes() == out.sizes(), InvalidArgument, out,
                "linear_packed: what is added has another shape than the result");
  if (!are_contiguous(context, {&input, &packed, &out}) ||
      (other.has_value() && !are_contiguous(context, {&*other}))) {
    return out;
  }
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    const auto found = activation_named<T>(activation);
    OPSMITH_CHECK(context, found.has_value(), InvalidArgument, , "linear_packed: activation is one of %s",
                  kActivations);
    Product<T> product = linear_product<T>(context, input, out_features, bias, out);
    product.packed = static_cast<const T*>(packed.const_data_ptr());
    const T* const added = other.has_value() ? static_cast<const T*>(other->const_data_ptr()) : nullptr;
    const auto finish = [&, to = product.c.data](int64_t row, int64_t row_end, int64_t column,
                                                 int64_t column_end) {
      for (; row < row_end; ++row) {
        const int64_t at = row * out_features + column;
        found->apply(added == nullptr ? nullptr : added + at, to + at, column_end - column);
      }
    };
    if (added != nullptr || !found->is_none()) {
      product.finish = finish;
    }
    multiply<T>(context, product, with);
  };
  OPSMITH_BY_DTYPE("optimized::linear_packed.out", out.scalar_type(), compute)
  return out;
}

}  // namespace opsmith::optimized::native
