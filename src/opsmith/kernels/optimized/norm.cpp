// native_layer_norm with its gradients, and rms_norm, of contiguous tensors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

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
void layer_norm(const Tensor& x, const NormLines& rows, const OptionalTensor& weight,
                const OptionalTensor& bias, float eps, Tensor& out, Tensor& mean, Tensor& rstd,
                LayerNorm<T, W>* function) {
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const bool streamed = is_streamed(x, rows);
  parallel(rows.count, row_grain_size(rows.length * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float center, scale;
      function(from + row * rows.length, data<W>(weight), data<W>(bias), to + row * rows.length, rows.length,
               eps, &center, &scale, streamed);
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
void layer_norm_gradient(KernelRuntimeContext& context, const Tensor& grad, const Tensor& x,
                         const NormLines& rows, const Tensor& mean, const Tensor& rstd,
                         const OptionalTensor& weight, const NormGradients& gradients,
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
  T* const to = gradients.input == nullptr ? nullptr : static_cast<T*>(gradients.input->mutable_data_ptr());
  std::fill_n(sums.get(), parts * 2 * n, 0.0f);
  parallel(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      float* const own = sums + part * 2 * n;
      for (int64_t row = part * rows_of_part; row < std::min(rows.count, (part + 1) * rows_of_part); ++row) {
        function(g + row * n, from + row * n, data<W>(weight), to == nullptr ? nullptr : to + row * n, n,
                 element_at(mean, row), element_at(rstd, row), gradients.weight == nullptr ? nullptr : own,
                 gradients.bias == nullptr ? nullptr : own + n);
      }
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < 2 * n; ++i) {
      sums[i] += sums[part * 2 * n + i];
    }
  }
  if (gradients.weight != nullptr) {
    put_elements(sums, n, *gradients.weight, 0, 1);
  }
  if (gradients.bias != nullptr) {
    put_elements(sums + n, n, *gradients.bias, 0, 1);
  }
}

template <class T, class W>
void rms_norm(const Tensor& x, const NormLines& rows, const OptionalTensor& weight, float eps, Tensor& out,
              RmsNorm<T, W>* function) {
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const bool streamed = is_streamed(x, rows);
  parallel(rows.count, row_grain_size(rows.length * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      function(from + row * rows.length, data<W>(weight), to + row * rows.length, rows.length, eps, streamed);
    }
  });
}

constexpr char kLayerNorm[] = "native_layer_norm.out";
constexpr char kLayerNormGradient[] = "native_layer_norm_backward.out";
constexpr char kRmsNorm[] = "optimized::rms_norm.out";

// Whether the loops take x, statistics of any dtype of this library, and gradients of x's dtype or Float.
bool calculates(KernelRuntimeContext& context, const char* name, const Tensor& x, const Tensor* result,
                std::initializer_list<const Tensor*> statistics,
                std::initializer_list<const Tensor*> gradients) {
  return (is_taken(x.scalar_type()) && have_dtypes_of(x, result, gradients) &&
          std::all_of(statistics.begin(), statistics.end(),
                      [](const Tensor* each) { return is_taken(each->scalar_type()); })) ||
         reject(context, Error::NotSupported,
                "%s takes float32, or bfloat16 or float16 with parameters of either", name);
}

}  // namespace

std::tuple<Tensor&, Tensor&, Tensor&> native_layer_norm_out(KernelRuntimeContext& context,
                                                            const Tensor& input, IntList normalized_shape,
                                                            const OptionalTensor& weight,
                                                            const OptionalTensor& bias, double eps,
                                                            Tensor& out, Tensor& mean, Tensor& rstd) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out, mean, rstd);
  NormLines rows;
  if (!calculates(context, "layer_norm", input, &out, {&mean, &rstd}, {}) ||
      !have_one_dtype(context, "layer_norm", weight, bias) ||
      !prepare_layer_norm(context, input, normalized_shape, weight, bias, out, mean, rstd, rows)) {
    return results;
  }
  if (rows.length == 0) {
    for (int64_t row = 0; row < rows.count; ++row) {
      put(mean, row, 0.0f);
      put(rstd, row, std::numeric_limits<float>::quiet_NaN());
    }
    return results;
  }
  const float epsilon = static_cast<float>(eps);
  OPSMITH_WITH_PARAMETERS(
      kLayerNorm, input.scalar_type(), has_float(weight, bias), layer_norm,
      [&](auto* function) { layer_norm(input, rows, weight, bias, epsilon, out, mean, rstd, function); })
  return results;
}

// Gradients of input, weight and bias, as output_mask asks for.
std::tuple<Tensor&, Tensor&, Tensor&> native_layer_norm_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_out, const Tensor& input, IntList normalized_shape,
    const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight, const OptionalTensor& bias,
    ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1, Tensor& out2) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3)) {
    return results;
  }
  NormLines rows;
  const NormGradients gradients =
      asked_for(output_mask, out0, out1, out2, weight.has_value(), bias.has_value());
  if (!calculates(context, "layer_norm_backward", input, gradients.input, {&mean, &rstd},
                  {gradients.weight, gradients.bias}) ||
      !prepare_layer_norm_backward(context, grad_out, input, normalized_shape, mean, rstd, weight, bias,
                                   gradients, rows) ||
      rows.length == 0) {
    return results;
  }
  OPSMITH_WITH_PARAMETERS(
      kLayerNormGradient, input.scalar_type(), has_float(weight), layer_norm_gradient, [&](auto* function) {
        layer_norm_gradient(context, grad_out, input, rows, mean, rstd, weight, gradients, function);
      })
  return results;
}

// x / sqrt(mean(x²) + eps) · weight; without eps, that of the dtype computed in.
Tensor& rms_norm_out(KernelRuntimeContext& context, const Tensor& input, IntList normalized_shape,
                     const OptionalTensor& weight, std::optional<double> eps, Tensor& out) {
  constexpr char kName[] = "rms_norm";
  NormLines rows;
  if (!calculates(context, kName, input, &out, {}, {}) ||
      !norm_lines(context, kName, input, normalized_shape, rows) ||
      !is_parameter(context, kName, weight, input, Dims(normalized_shape)) ||
      !resize_like(context, out, input) || !are_contiguous(context, {&input, &out}) || out.numel() == 0) {
    return out;
  }
  constexpr double kDefault = std::numeric_limits<float>::epsilon();
  const float epsilon = static_cast<float>(eps.value_or(kDefault));
  OPSMITH_WITH_PARAMETERS(kRmsNorm, input.scalar_type(), has_float(weight), rms_norm,
                          [&](auto* function) { rms_norm(input, rows, weight, epsilon, out, function); })
  return out;
}

}  // namespace opsmith::optimized::native
