// The checks of normalisations' arguments, and the shapes of their results: the same for every library, texts
// of rejections included. What a library calculates with besides, and how Tensors may lie, it checks itself.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <initializer_list>
#include <optional>
#include <tuple>

#include "dtypes.h"
#include "resize.h"

namespace opsmith {

using OptionalTensor = std::optional<Tensor>;

// What layer_norm and rms_norm normalize: so many lines of so many elements.
struct NormLines {
  int64_t count;
  int64_t length;
};

// The arguments of batch norm, beside the operand.
struct BatchNorm {
  OptionalTensor weight;
  OptionalTensor bias;
  OptionalTensor running_mean;
  OptionalTensor running_var;
  bool training;
  double momentum;
  double eps;
};

// The gradients that are asked for; the others are null.
struct NormGradients {
  Tensor* input;
  Tensor* weight;
  Tensor* bias;
};

inline NormGradients asked_for(ArrayRef<bool> output_mask, Tensor& input, Tensor& weight, Tensor& bias,
                               bool has_weight = true, bool has_bias = true) {
  return {output_mask[0] ? &input : nullptr, output_mask[1] && has_weight ? &weight : nullptr,
          output_mask[2] && has_bias ? &bias : nullptr};
}

// Whether parameters and statistics may have the dtype beside an input of the other: the same, or Float
// beside Half and BFloat16, which is ATen's mixed mode.
constexpr bool is_parameter_dtype(ScalarType own, ScalarType input) {
  return own == input || own == compute_dtype(input);
}

// Whether a result has the input's dtype, and others that of a parameter; null ones are not asked for.
inline bool have_dtypes_of(const Tensor& input, const Tensor* result,
                           std::initializer_list<const Tensor*> others) {
  return (result == nullptr || result->scalar_type() == input.scalar_type()) &&
         std::all_of(others.begin(), others.end(), [&](const Tensor* each) {
           return each == nullptr || is_parameter_dtype(each->scalar_type(), input.scalar_type());
         });
}

// Whether a parameter or a running statistic, where there is one, has the sizes and a dtype for the input;
// rejects the call where not.
inline bool is_parameter(KernelRuntimeContext& context, const char* name, const OptionalTensor& parameter,
                         const Tensor& input, const Dims& sizes) {
  if (!parameter.has_value()) {
    return true;
  }
  OPSMITH_CHECK(context, sizes_of(*parameter) == sizes, InvalidArgument, false,
                "%s: expected weight, bias and running statistics of %" PRId64
                " elements in %d dimensions, but got %" PRId64 " in %d",
                name, sizes.product(0, sizes.rank), static_cast<int>(sizes.rank),
                static_cast<int64_t>(parameter->numel()), static_cast<int>(parameter->dim()));
  return is_parameter_dtype(parameter->scalar_type(), input.scalar_type()) ||
         reject(context, Error::InvalidArgument,
                "%s: expected weight, bias and running statistics of dtype %s, but got %s", name,
                name_of(input.scalar_type()), name_of(parameter->scalar_type()));
}

// Whether every result that is not null has a dtype that may be written for the input: in ExecuTorch that of
// a parameter. Rejects the call where not.
inline bool are_norm_results(KernelRuntimeContext& context, const char* name, const Tensor& input,
                             std::initializer_list<const Tensor*> results) {
  for (const Tensor* each : results) {
    const ScalarType own = each == nullptr ? input.scalar_type() : each->scalar_type();
    OPSMITH_CHECK(context,
                  is_floating(own) && (!in_executorch() || is_parameter_dtype(own, input.scalar_type())),
                  InvalidArgument, false, "%s: a result of dtype %s is not supported for an input of %s",
                  name, name_of(own), name_of(input.scalar_type()));
  }
  return true;
}

// Whether the statistics that a gradient is handed are so many numbers; rejects the call where not.
inline bool are_statistics(KernelRuntimeContext& context, const char* name, const Tensor& mean,
                           const Tensor& rstd, const Dims& sizes) {
  OPSMITH_CHECK(context, have_elements(sizes, mean.numel()) && have_elements(sizes, rstd.numel()),
                InvalidArgument, false, "%s: mean and rstd do not belong to input", name);
  return (is_floating(mean.scalar_type()) && is_floating(rstd.scalar_type())) ||
         reject(context, Error::InvalidArgument, "%s: mean and rstd have to be floating point, not %s and %s",
                name, name_of(mean.scalar_type()), name_of(rstd.scalar_type()));
}

// Whether they can be given their shapes, those that are asked for; rejects the call where not.
inline bool resize(KernelRuntimeContext& context, const NormGradients& gradients, const Tensor& input,
                   const Dims& parameters) {
  return (gradients.input == nullptr || resize_like(context, *gradients.input, input)) &&
         (gradients.weight == nullptr || resize(context, *gradients.weight, parameters)) &&
         (gradients.bias == nullptr || resize(context, *gradients.bias, parameters));
}

// The lines of an input whose last sizes are those of normalized_shape; rejects others.
inline bool norm_lines(KernelRuntimeContext& context, const char* name, const Tensor& input,
                       IntList normalized_shape, NormLines& lines) {
  OPSMITH_CHECK(
      context, !normalized_shape.empty(), InvalidArgument, false,
      "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element");
  const Dims sizes = sizes_of(input);
  const int64_t leading = sizes.rank - static_cast<int64_t>(normalized_shape.size());
  OPSMITH_CHECK(
      context,
      leading >= 0 && std::equal(normalized_shape.begin(), normalized_shape.end(), sizes.value + leading),
      InvalidArgument, false, "%s: the input's last sizes are not those of normalized_shape", name);
  lines = {sizes.product(0, leading), sizes.product(leading, sizes.rank)};
  return true;
}

inline bool prepare_layer_norm(KernelRuntimeContext& context, const Tensor& input, IntList normalized_shape,
                               const OptionalTensor& weight, const OptionalTensor& bias, Tensor& out,
                               Tensor& mean, Tensor& rstd, NormLines& lines) {
  constexpr char kName[] = "native_layer_norm";
  if (!norm_lines(context, kName, input, normalized_shape, lines) ||
      !is_parameter(context, kName, weight, input, Dims(normalized_shape)) ||
      !is_parameter(context, kName, bias, input, Dims(normalized_shape)) ||
      !out_is(context, input.scalar_type(), out) ||
      !are_norm_results(context, kName, input, {&out, &mean, &rstd})) {
    return false;
  }
  Dims statistics = sizes_of(input);
  std::fill_n(statistics.value + statistics.rank - normalized_shape.size(), normalized_shape.size(), 1);
  return resize_like(context, out, input) && resize(context, mean, statistics) &&
         resize(context, rstd, statistics) && are_contiguous(context, {&input, &out});
}

inline bool prepare_layer_norm_backward(KernelRuntimeContext& context, const Tensor& grad_out,
                                        const Tensor& input, IntList normalized_shape, const Tensor& mean,
                                        const Tensor& rstd, const OptionalTensor& weight,
                                        const OptionalTensor& bias, const NormGradients& gradients,
                                        NormLines& lines) {
  constexpr char kName[] = "native_layer_norm_backward";
  if (!norm_lines(context, kName, input, normalized_shape, lines) ||
      !is_parameter(context, kName, weight, input, Dims(normalized_shape)) ||
      !is_parameter(context, kName, bias, input, Dims(normalized_shape)) ||
      !are_statistics(context, kName, mean, rstd, {lines.count}) ||
      !are_norm_results(context, kName, input, {gradients.input, gradients.weight, gradients.bias})) {
    return false;
  }
  OPSMITH_CHECK(context,
                sizes_of(grad_out) == sizes_of(input) && grad_out.scalar_type() == input.scalar_type(),
                InvalidArgument, false, "%s: grad_out does not belong to input", kName);
  return resize(context, gradients, input, Dims(normalized_shape)) &&
         are_contiguous(context, {&grad_out, &input});
}

inline bool are_groups(KernelRuntimeContext& context, const char* name, const Tensor& input, int64_t batch,
                       int64_t channels, int64_t pixels, int64_t groups) {
  OPSMITH_CHECK(context, groups > 0 && channels % groups == 0, InvalidArgument, false,
                "Expected number of channels in input to be divisible by num_groups, but got %" PRId64
                " channels and num_groups=%" PRId64,
                channels, groups);
  return have_elements({batch, channels, pixels}, input.numel()) ||
         reject(context, Error::InvalidArgument, "%s: N, C and HxW are not those of input", name);
}

inline bool prepare_group_norm(KernelRuntimeContext& context, const Tensor& input,
                               const OptionalTensor& weight, const OptionalTensor& bias, int64_t batch,
                               int64_t channels, int64_t pixels, int64_t groups, Tensor& out, Tensor& mean,
                               Tensor& rstd) {
  constexpr char kName[] = "native_group_norm";
  return are_groups(context, kName, input, batch, channels, pixels, groups) &&
         is_parameter(context, kName, weight, input, {channels}) &&
         is_parameter(context, kName, bias, input, {channels}) && out_is(context, input.scalar_type(), out) &&
         are_norm_results(context, kName, input, {&out, &mean, &rstd}) && resize_like(context, out, input) &&
         resize(context, mean, {batch, groups}) && resize(context, rstd, {batch, groups});
}

inline bool prepare_group_norm_backward(KernelRuntimeContext& context, const Tensor& grad_out,
                                        const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                        const OptionalTensor& weight, int64_t batch, int64_t channels,
                                        int64_t pixels, int64_t groups, const NormGradients& gradients) {
  constexpr char kName[] = "native_group_norm_backward";
  OPSMITH_CHECK(context, grad_out.numel() == input.numel() && grad_out.scalar_type() == input.scalar_type(),
                InvalidArgument, false, "%s: grad_out does not belong to input", kName);
  return are_groups(context, kName, input, batch, channels, pixels, groups) &&
         is_parameter(context, kName, weight, input, {channels}) &&
         are_statistics(context, kName, mean, rstd, {batch, groups}) &&
         are_norm_results(context, kName, input, {gradients.input, gradients.weight, gradients.bias}) &&
         resize(context, gradients, input, {channels});
}

// Whether what is saved for the gradient is asked for: in evaluation the CPU has nothing of it, and other
// devices, as PyTorch's meta function has it, what was used.
inline bool saves_statistics(const BatchNorm& norm, const Tensor& input, const Tensor& save_mean) {
  return norm.training || (save_mean.dim() == 1 && save_mean.size(0) == input.size(1));
}

inline bool prepare_batch_norm(KernelRuntimeContext& context, const Tensor& input, const BatchNorm& norm,
                               Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  constexpr char kName[] = "batch_norm";
  OPSMITH_CHECK(context, input.dim() >= 2, InvalidArgument, false,
                "batch_norm expects at least 2 dimensions, but got %d", static_cast<int>(input.dim()));
  const int64_t channels = input.size(1);
  // ATen counts the elements of weight and bias, whatever dimensions they have.
  const auto is_of_channels = [&](const OptionalTensor& parameter) {
    const bool counted = !in_executorch() && parameter.has_value() && parameter->numel() == channels;
    return is_parameter(context, kName, parameter, input, counted ? sizes_of(*parameter) : Dims{channels});
  };
  if (!is_of_channels(norm.weight) || !is_of_channels(norm.bias) ||
      !is_parameter(context, kName, norm.running_mean, input, {channels}) ||
      !is_parameter(context, kName, norm.running_var, input, {channels}) ||
      !same_dtype(context, input, out) ||
      !are_norm_results(context, kName, input, {&out, &save_mean, &save_invstd})) {
    return false;
  }
  OPSMITH_CHECK(context, norm.training || (norm.running_mean.has_value() && norm.running_var.has_value()),
                InvalidArgument, false,
                "Expected running_mean and running_var to be defined when not training");
  const Dims saved = saves_statistics(norm, input, save_mean) ? Dims{channels} : Dims{0};
  return resize_like(context, out, input) && resize(context, save_mean, saved) &&
         resize(context, save_invstd, saved);
}

}  // namespace opsmith

// The operators of batch norms, by a library's template `batch_norm_of`. Running statistics are written where
// those of the batch are taken. ExecuTorch's kernel without them does not ask whether it trains.
#define OPSMITH_BATCH_NORMS                                                                                  \
  constexpr char kBatchNorm[] = "_native_batch_norm_legit.out";                                              \
  constexpr char kBatchNormWithout[] = "_native_batch_norm_legit.no_stats_out";                              \
  constexpr char kBatchNormInference[] = "_native_batch_norm_legit_no_training.out";                         \
  using BatchNormResults = std::tuple<Tensor&, Tensor&, Tensor&>;                                            \
  BatchNormResults native_batch_norm_legit_out(                                                              \
      KernelRuntimeContext& context, const Tensor& input, const OptionalTensor& weight,                      \
      const OptionalTensor& bias, Tensor& running_mean, Tensor& running_var, bool training, double momentum, \
      double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {                                     \
    return batch_norm_of<kBatchNorm>(context, input,                                                         \
                                     {weight, bias, running_mean, running_var, training, momentum, eps},     \
                                     out, save_mean, save_invstd);                                           \
  }                                                                                                          \
  BatchNormResults native_batch_norm_legit_no_stats_out(                                                     \
      KernelRuntimeContext& context, const Tensor& input, const OptionalTensor& weight,                      \
      const OptionalTensor& bias, bool training, double momentum, double eps, Tensor& out,                   \
      Tensor& save_mean, Tensor& save_invstd) {                                                              \
    return batch_norm_of<kBatchNormWithout>(                                                                 \
        context, input,                                                                                      \
        {weight, bias, std::nullopt, std::nullopt, training || in_executorch(), momentum, eps}, out,         \
        save_mean, save_invstd);                                                                             \
  }                                                                                                          \
  BatchNormResults native_batch_norm_legit_no_training_out(                                                  \
      KernelRuntimeContext& context, const Tensor& input, const OptionalTensor& weight,                      \
      const OptionalTensor& bias, const Tensor& running_mean, const Tensor& running_var, double momentum,    \
      double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {                                     \
    return batch_norm_of<kBatchNormInference>(                                                               \
        context, input, {weight, bias, running_mean, running_var, false, momentum, eps}, out, save_mean,     \
        save_invstd);                                                                                        \
  }
