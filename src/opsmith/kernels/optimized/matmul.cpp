// mm, bmm, addmm, linear, and linear with weights that are packed ahead.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <type_traits>

#include <executorch/runtime/kernel/kernel_includes.h>

#include "dtypes.h"
#include "instruction_set.h"
#include "layout.h"
#include "product.h"
#include "scalar.h"
#include "threads.h"

namespace opsmith::optimized::native {

using executorch::aten::Scalar;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

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
#define OPSMITH_BY_DTYPE(name, dtype, compute)                                                   \
  if ((dtype) == ScalarType::Float) {                                                            \
    if constexpr (::opsmith::selected(name, ScalarType::Float)) {                                \
      compute(ProductFunctions<float>{OPSMITH_BEST(gemm_float), OPSMITH_BEST(dots_float),        \
                                      OPSMITH_BEST(pack_float)});                                \
    }                                                                                            \
  } else if constexpr (::opsmith::selected(name, ScalarType::BFloat16)) {                        \
    compute(ProductFunctions<Bfloat16>{OPSMITH_BEST(gemm_bfloat16), OPSMITH_BEST(dots_bfloat16), \
                                       OPSMITH_BEST(pack_bfloat16)});                            \
  }

bool have_one_dtype(const Tensor& a, const Tensor& b, const Tensor& c) {
  return is_taken(a.scalar_type()) && a.scalar_type() == b.scalar_type() &&
         a.scalar_type() == c.scalar_type();
}

bool is_resized(Tensor& out, std::initializer_list<int64_t> sizes) {
  SizesType narrow[3];
  std::copy(sizes.begin(), sizes.end(), narrow);
  return executorch::runtime::resize_tensor(out, {narrow, sizes.size()}) == Error::Ok;
}

// c[i][j] = beta · self, which broadcasts to c; where self is c itself, in place.
template <class T>
void put_scaled(const Tensor& self, float beta, Tensor& out) {
  const auto affine = [] {
    if constexpr (std::is_same_v<T, float>) {
      return OPSMITH_BEST(affine_float);
    } else {
      return OPSMITH_BEST(affine_bfloat16);
    }
  }();
  const int64_t rows = out.sizes()[0], columns = out.sizes()[1];
  const auto stride = [&](int64_t from_end) -> int64_t {
    const int64_t dim = self.dim() - from_end;
    return dim < 0 || self.sizes()[dim] == 1 ? 0 : self.strides()[dim];
  };
  const int64_t row_stride = stride(2), column_stride = stride(1);
  const T* const from = static_cast<const T*>(self.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t out_row = out.strides()[0], out_column = out.strides()[1];
  parallel(rows, rows_per_thread(columns), [=](int64_t begin, int64_t end) {
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

template <class With>
using ElementOf = typename std::decay_t<With>::Element;

}  // namespace

Tensor& mm_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& mat2, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, have_one_dtype(self, mat2, out), NotSupported, out,
                      "mm takes float32 or bfloat16, both operands the same");
  ET_KERNEL_CHECK_MSG(ctx,
                      self.dim() == 2 && mat2.dim() == 2 && self.sizes()[1] == mat2.sizes()[0] &&
                          is_resized(out, {self.sizes()[0], mat2.sizes()[1]}),
                      InvalidArgument, out, "mm: matrices of n × k and k × m have a product of n × m");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    multiply<T>(ctx,
                {1, self.sizes()[0], mat2.sizes()[1], self.sizes()[1], matrix<T>(self), matrix<T>(mat2),
                 matrix<T>(out), nullptr, 1.0f, false, nullptr},
                with);
  };
  OPSMITH_BY_DTYPE("mm.out", out.scalar_type(), compute)
  return out;
}

Tensor& bmm_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& mat2, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, have_one_dtype(self, mat2, out), NotSupported, out,
                      "bmm takes float32 or bfloat16, both operands the same");
  ET_KERNEL_CHECK_MSG(ctx,
                      self.dim() == 3 && mat2.dim() == 3 && self.sizes()[0] == mat2.sizes()[0] &&
                          self.sizes()[2] == mat2.sizes()[1] &&
                          is_resized(out, {self.sizes()[0], self.sizes()[1], mat2.sizes()[2]}),
                      InvalidArgument, out, "bmm: batches of n × k and k × m have a product of n × m");
  ET_KERNEL_CHECK_MSG(ctx, has_rows_or_columns(out), NotSupported, out,
                      "bmm: the result's rows or columns have to be contiguous");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    multiply<T>(ctx,
                {self.sizes()[0], self.sizes()[1], mat2.sizes()[2], self.sizes()[2], matrix<T>(self),
                 matrix<T>(mat2), matrix<T>(out), nullptr, 1.0f, false, nullptr},
                with);
  };
  OPSMITH_BY_DTYPE("bmm.out", out.scalar_type(), compute)
  return out;
}

Tensor& addmm_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                  const Scalar& beta, const Scalar& alpha, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, have_one_dtype(mat1, mat2, out) && self.scalar_type() == out.scalar_type(),
                      NotSupported, out, "addmm takes float32 or bfloat16, all operands the same");
  ET_KERNEL_CHECK_MSG(ctx,
                      mat1.dim() == 2 && mat2.dim() == 2 && mat1.sizes()[1] == mat2.sizes()[0] &&
                          is_resized(out, {mat1.sizes()[0], mat2.sizes()[1]}),
                      InvalidArgument, out, "addmm: matrices of n × k and k × m have a product of n × m");
  for (ssize_t d = 1; d <= self.dim(); ++d) {
    const auto size = self.sizes()[self.dim() - d];
    ET_KERNEL_CHECK_MSG(ctx, d <= 2 && (size == 1 || size == out.sizes()[2 - d]), InvalidArgument, out,
                        "addmm: what is added does not broadcast to the product");
  }
  const float factor = static_cast<float>(number(beta));
  const bool is_bias = factor == 1.0f && number(alpha) == 1.0 && out.strides()[1] == 1 && self.dim() >= 1 &&
                       self.numel() == out.sizes()[1] && self.sizes()[self.dim() - 1] == out.sizes()[1] &&
                       self.strides()[self.dim() - 1] == 1;
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    if (factor != 0.0f && !is_bias) {
      put_scaled<T>(self, factor, out);
    }
    multiply<T>(ctx,
                {1, mat1.sizes()[0], mat2.sizes()[1], mat1.sizes()[1], matrix<T>(mat1), matrix<T>(mat2),
                 matrix<T>(out), is_bias ? static_cast<const T*>(self.const_data_ptr()) : nullptr,
                 static_cast<float>(number(alpha)), factor != 0.0f && !is_bias, nullptr},
                with);
  };
  OPSMITH_BY_DTYPE("addmm.out", out.scalar_type(), compute)
  return out;
}

namespace {

// input is contiguous, of [..., depth]; what `weight` is the caller says.
template <class T>
Product<T> linear_product(const Tensor& input, int64_t features, const std::optional<Tensor>& bias,
                          Tensor& out) {
  const int64_t depth = input.sizes()[input.dim() - 1];
  const int64_t rows = out.numel() / (features == 0 ? 1 : features);
  return {1,
          rows,
          features,
          depth,
          {static_cast<const T*>(input.const_data_ptr()), depth, 1, 0},
          {},
          {static_cast<T*>(out.mutable_data_ptr()), features, 1, 0},
          bias.has_value() ? static_cast<const T*>(bias->const_data_ptr()) : nullptr,
          1.0f,
          false,
          nullptr};
}

bool is_linear(const Tensor& input, int64_t depth, int64_t features, const std::optional<Tensor>& bias,
               Tensor& out) {
  const auto dims = input.dim();
  if (dims < 1 || input.sizes()[dims - 1] != depth ||
      (bias.has_value() && (bias->dim() != 1 || bias->sizes()[0] != features))) {
    return false;
  }
  SizesType sizes[executorch::runtime::kTensorDimensionLimit];
  std::copy(input.sizes().begin(), input.sizes().end(), sizes);
  sizes[dims - 1] = static_cast<SizesType>(features);
  return executorch::runtime::resize_tensor(out, {sizes, static_cast<size_t>(dims)}) == Error::Ok;
}

}  // namespace

Tensor& linear_out(KernelRuntimeContext& ctx, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, Tensor& out) {
  ET_KERNEL_CHECK_MSG(
      ctx,
      have_one_dtype(input, weight, out) && (!bias.has_value() || bias->scalar_type() == out.scalar_type()),
      NotSupported, out, "linear takes float32 or bfloat16, all operands the same");
  ET_KERNEL_CHECK_MSG(
      ctx, weight.dim() == 2 && is_linear(input, weight.sizes()[1], weight.sizes()[0], bias, out),
      InvalidArgument, out, "linear: an input of [..., k] has a weight of [n, k] and a bias of [n]");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    Product<T> product = linear_product<T>(input, weight.sizes()[0], bias, out);
    const Matrix<const T> by_rows = matrix<T>(weight);
    product.b = {by_rows.data, by_rows.column, by_rows.row, 0};
    multiply<T>(ctx, product, with);
  };
  OPSMITH_BY_DTYPE("linear.out", out.scalar_type(), compute)
  return out;
}

// The panels of a linear's weight: of [features, depth] a tensor of [⌈features/16⌉, depth, 16], or for
// bfloat16 [⌈features/16⌉, ⌈depth/2⌉, 32].
Tensor& pack_linear_weight_out(KernelRuntimeContext& ctx, const Tensor& weight, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, is_taken(weight.scalar_type()) && weight.scalar_type() == out.scalar_type(),
                      NotSupported, out, "pack_linear_weight takes float32 or bfloat16");
  ET_KERNEL_CHECK_MSG(ctx, weight.dim() == 2, InvalidArgument, out,
                      "pack_linear_weight: a weight is [features, depth]");
  const int64_t features = weight.sizes()[0], depth = weight.sizes()[1], panels = panels_of(features);
  const bool is_float = weight.scalar_type() == ScalarType::Float;
  ET_KERNEL_CHECK_MSG(
      ctx, is_resized(out, {panels, is_float ? depth : (depth + 1) / 2, is_float ? kPanel : 2 * kPanel}),
      InvalidArgument, out, "pack_linear_weight: the result has another shape");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    const Matrix<const T> from = matrix<T>(weight);
    T* const to = static_cast<T*>(out.mutable_data_ptr());
    parallel(panels, rows_per_thread(panel_size<T>(depth)), [=, &with](int64_t begin, int64_t end) {
      const int64_t column = begin * kPanel;
      with.pack(from.data + column * from.row, from.column, from.row, depth,
                std::min(features, end * kPanel) - column, to + begin * panel_size<T>(depth));
    });
  };
  OPSMITH_BY_DTYPE("optimized::pack_linear_weight.out", out.scalar_type(), compute)
  return out;
}

Tensor& linear_packed_out(KernelRuntimeContext& ctx, const Tensor& input, const Tensor& packed,
                          const std::optional<Tensor>& bias, int64_t out_features, Tensor& out) {
  ET_KERNEL_CHECK_MSG(
      ctx,
      have_one_dtype(input, packed, out) && (!bias.has_value() || bias->scalar_type() == out.scalar_type()),
      NotSupported, out, "linear_packed takes float32 or bfloat16, all operands the same");
  const bool is_float = packed.scalar_type() == ScalarType::Float;
  const int64_t depth = input.dim() < 1 ? 0 : input.sizes()[input.dim() - 1];
  ET_KERNEL_CHECK_MSG(
      ctx,
      packed.dim() == 3 && out_features >= 0 && packed.sizes()[0] == panels_of(out_features) &&
          packed.sizes()[1] == (is_float ? depth : (depth + 1) / 2) &&
          packed.sizes()[2] == (is_float ? kPanel : 2 * kPanel) &&
          is_linear(input, depth, out_features, bias, out),
      InvalidArgument, out, "linear_packed: the weight was packed for other features, or another dtype");
  const auto compute = [&](const auto& with) {
    using T = ElementOf<decltype(with)>;
    Product<T> product = linear_product<T>(input, out_features, bias, out);
    product.packed = static_cast<const T*>(packed.const_data_ptr());
    multiply<T>(ctx, product, with);
  };
  OPSMITH_BY_DTYPE("optimized::linear_packed.out", out.scalar_type(), compute)
  return out;
}

}  // namespace opsmith::optimized::native
