// native_layer_norm with its gradients, and rms_norm, of contiguous tensors.
#include <cmath>
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "../common/resize.h"
#include "../common/temporary.h"
#include "by_dtype.h"
#include "elements.h"
#include "norm_rows.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

// A statistic of a row, in any of the dtypes.
void put(Tensor& statistics, int64_t row, float value) {
  put_elements(&value, 1, statistics, row, 1);
}

template <class T, class W>
void layer_norm(const Tensor& x, const Rows& rows, const std::optional<Tensor>& weight,
                const std::optional<Tensor>& bias, float eps, Tensor& out, Tensor& mean, Tensor& rstd,
                LayerNorm<T, W>* function) {
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  parallel(rows.count, row_grain_size(rows.length * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float center, scale;
      function(from + row * rows.length, data<W>(weight), data<W>(bias), to + row * rows.length, rows.length,
               eps, &center, &scale, rows.streamed);
      // Of infinities it is NaN, as PyTorch's.
      put(mean, row, std::isnan(scale) ? scale : center);
      put(rstd, row, scale);
    }
  });
}

template <class T, class W>
using LayerNormGradient = void(const T* g, const T* x, const W* weight, T* z, int64_t n, float mean,
                               float rstd, float* weight_sums, float* bias_sums);

// Gradients of x, weight and bias, each unless it is null. Parts of the rows are summed up apart.
template <class T, class W>
void layer_norm_gradient(KernelRuntimeContext& context, const Tensor& grad, const Tensor& x, const Rows& rows,
                         const Tensor& mean, const Tensor& rstd, const std::optional<Tensor>& weight,
                         Tensor* x_grad, Tensor* weight_grad, Tensor* bias_grad,
                         LayerNormGradient<T, W>* function) {
  constexpr int64_t kParts = 16;
  const int64_t n = rows.length;
  const int64_t rows_of_part = std::max(row_grain_size(n * kNormCost), ceil_divided(rows.count, kParts));
  const int64_t parts = std::max<int64_t>(1, ceil_divided(rows.count, rows_of_part));
  const auto sums = temporary<float>(context, parts * 2 * n);
  if (sums == nullptr) {
    return;
  }
  const T* const g = static_cast<const T*>(grad.const_data_ptr());
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  T* const to = x_grad == nullptr ? nullptr : static_cast<T*>(x_grad->mutable_data_ptr());
  std::fill_n(sums.get(), parts * 2 * n, 0.0f);
  parallel(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      float* const own = sums + part * 2 * n;
      for (int64_t row = part * rows_of_part; row < std::min(rows.count, (part + 1) * rows_of_part); ++row) {
        function(g + row * n, from + row * n, data<W>(weight), to == nullptr ? nullptr : to + row * n, n,
                 element_at(mean, row), element_at(rstd, row), weight_grad == nullptr ? nullptr : own,
                 bias_grad == nullptr ? nullptr : own + n);
      }
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < 2 * n; ++i) {
      sums[i] += sums[part * 2 * n + i];
    }
  }
  if (weight_grad != nullptr) {
    put_elements(sums, n, *weight_grad, 0, 1);
  }
  if (bias_grad != nullptr) {
    put_elements(sums + n, n, *bias_grad, 0, 1);
  }
}

template <class T, class W>
void rms_norm(const Tensor& x, const Rows& rows, const std::optional<Tensor>& weight, float eps, Tensor& out,
              RmsNorm<T, W>* function) {
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  parallel(rows.count, row_grain_size(rows.length * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      function(from + row * rows.length, data<W>(weight), to + row * rows.length, rows.length, eps,
               rows.streamed);
    }
  });
}

constexpr char kLayerNorm[] = "native_layer_norm.out";
constexpr char kLayerNormGradient[] = "native_layer_norm_backward.out";
constexpr char kRmsNorm[] = "optimized::rms_norm.out";

// Whether a parameter's gradient may have the dtype: the operand's, or Float.
bool is_parameter_of(const Tensor& gradient, ScalarType operand) {
  return gradient.scalar_type() == operand || gradient.scalar_type() == ScalarType::Float;
}

}  // namespace

std::tuple<Tensor&, Tensor&, Tensor&> native_layer_norm_out(KernelRuntimeContext& context,
                                                            const Tensor& input, Shape normalized_shape,
                                                            const std::optional<Tensor>& weight,
                                                            const std::optional<Tensor>& bias, double eps,
                                                            Tensor& out, Tensor& mean, Tensor& rstd) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out, mean, rstd);
  const ScalarType dtype = input.scalar_type();
  OPSMITH_CHECK(context,
                is_taken(dtype) && out.scalar_type() == dtype && has_dtype(weight, input) &&
                    has_dtype(bias, input) && is_taken(mean.scalar_type()) && is_taken(rstd.scalar_type()),
                NotSupported, results,
                "layer_norm takes float32, or bfloat16 or float16 with parameters of either");
  OPSMITH_CHECK(context,
                !weight.has_value() || !bias.has_value() || weight->scalar_type() == bias->scalar_type(),
                NotSupported, results, "layer_norm: weight and bias have one dtype");
  OPSMITH_CHECK(context,
                ends_with(input, normalized_shape) && has_shape(weight, normalized_shape) &&
                    has_shape(bias, normalized_shape),
                InvalidArgument, results,
                "layer_norm: the operand's last dimensions, weight and bias have the normalized shape");
  Dims sizes = sizes_of(input);
  std::fill(sizes.value + sizes.rank - normalized_shape.size(), sizes.value + sizes.rank, 1);
  if (!resize_like(context, out, input) || !resize(context, mean, sizes) || !resize(context, rstd, sizes) ||
      !are_contiguous(context, {&input, &out})) {
    return results;
  }
  const Rows rows = rows_of(input, normalized_shape);
  if (rows.length == 0) {
    for (int64_t row = 0; row < mean.numel(); ++row) {
      put(mean, row, 0.0f);
      put(rstd, row, std::numeric_limits<float>::quiet_NaN());
    }
    return results;
  }
  const bool float_parameters = (weight.has_value() && weight->scalar_type() == ScalarType::Float) ||
                                (bias.has_value() && bias->scalar_type() == ScalarType::Float);
  const float epsilon = static_cast<float>(eps);
  OPSMITH_WITH_PARAMETERS(kLayerNorm, dtype, float_parameters, layer_norm, [&](auto* function) {
    layer_norm(input, rows, weight, bias, epsilon, out, mean, rstd, function);
  })
  return results;
}

// Gradients of input, weight and bias, as output_mask asks for.
std::tuple<Tensor&, Tensor&, Tensor&> native_layer_norm_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_out, const Tensor& input, Shape normalized_shape,
    const Tensor& mean, const Tensor& rstd, const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias, ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1, Tensor& out2) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3) || !are_contiguous(context, {&grad_out, &input})) {
    return results;
  }
  const ScalarType dtype = input.scalar_type();
  Tensor* const x_grad = output_mask[0] ? &out0 : nullptr;
  Tensor* const weight_grad = output_mask[1] && weight.has_value() ? &out1 : nullptr;
  Tensor* const bias_grad = output_mask[2] && bias.has_value() ? &out2 : nullptr;
  OPSMITH_CHECK(context,
                is_taken(dtype) && grad_out.scalar_type() == dtype && has_dtype(weight, input) &&
                    has_dtype(bias, input) && is_taken(mean.scalar_type()) && is_taken(rstd.scalar_type()) &&
                    (x_grad == nullptr || out0.scalar_type() == dtype) &&
                    (weight_grad == nullptr || is_parameter_of(out1, dtype)) &&
                    (bias_grad == nullptr || is_parameter_of(out2, dtype)),
                NotSupported, results,
                "layer_norm_backward takes float32, or bfloat16 or float16 with parameters of either");
  OPSMITH_CHECK(
      context,
      ends_with(input, normalized_shape) && has_shape(weight, normalized_shape) &&
          has_shape(bias, normalized_shape),
      InvalidArgument, results,
      "layer_norm_backward: the operand's last dimensions, weight and bias have the normalized shape");
  const Rows rows = rows_of(input, normalized_shape);
  OPSMITH_CHECK(context,
                sizes_of(grad_out) == sizes_of(input) &&
                    (rows.length == 0 || (mean.numel() == rows.count && rstd.numel() == rows.count)),
                InvalidArgument, results,
                "layer_norm_backward: grad_out, mean and rstd do not belong to input");
  if ((x_grad != nullptr && !resize_like(context, out0, input)) ||
      (weight_grad != nullptr && !resize_like(context, out1, *weight)) ||
      (bias_grad != nullptr && !resize_like(context, out2, *bias)) || rows.length == 0) {
    return results;
  }
  const auto compute = [&](auto* function) {
    layer_norm_gradient(context, grad_out, input, rows, mean, rstd, weight, x_grad, weight_grad, bias_grad,
                        function);
  };
  const bool float_weight = weight.has_value() && weight->scalar_type() == ScalarType::Float;
  OPSMITH_WITH_PARAMETERS(kLayerNormGradient, dtype, float_weight, layer_norm_gradient, compute)
  return results;
}

// x / sqrt(mean(x²) + eps) · weight; without eps, that of the dtype computed in.
Tensor& rms_norm_out(KernelRuntimeContext& context, const Tensor& input, Shape normalized_shape,
                     const std::optional<Tensor>& weight, std::optional<double> eps, Tensor& out) {
  const ScalarType dtype = input.scalar_type();
  OPSMITH_CHECK(context, is_taken(dtype) && out.scalar_type() == dtype && has_dtype(weight, input),
                NotSupported, out, "rms_norm takes float32, or bfloat16 or float16 with a weight of either");
  OPSMITH_CHECK(context, ends_with(input, normalized_shape) && has_shape(weight, normalized_shape),
                InvalidArgument, out,
                "rms_norm: the operand's last dimensions and the weight have the normalized shape");
  if (!resize_like(context, out, input) || !are_contiguous(context, {&input, &out})) {
    return out;
  }
  const Rows rows = rows_of(input, normalized_shape);
  constexpr double kDefault = std::numeric_limits<float>::epsilon();
  const float epsilon = static_cast<float>(eps.value_or(kDefault));
  const bool float_weight = weight.has_value() && weight->scalar_type() == ScalarType::Float;
  OPSMITH_WITH_PARAMETERS(kRmsNorm, dtype, float_weight, rms_norm,
                          [&](auto* function) { rms_norm(input, rows, weight, epsilon, out, function); })
  return out;
}

}  // namespace opsmith::optimized::native
