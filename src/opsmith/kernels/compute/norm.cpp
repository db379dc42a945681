// Layer norm and batch norm, and their gradients.
#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "dense.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

constexpr const char* kNorm =
#include "norm.cl"
    ;
constexpr const char* kLayerParameters =
#include "layer_norm_parameters.cl"
    ;

// As in the source.
struct NormShape {
  int64_t parts, count, step, stride;
};

at::Tensor dense(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? tensor->contiguous() : at::Tensor();
}

at::ScalarType statistics_dtype(const at::Tensor& input) {
  return at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

std::string norm_definitions(at::ScalarType parameters, at::ScalarType saved) {
  return definition("PARAMETERS", parameters) + definition("SAVED", saved);
}

// Of a row, or of a channel's elements in each sample.
Runs norm_runs(const NormShape& shape, std::initializer_list<at::Tensor> tensors) {
  return line_runs(shape.parts * shape.count, shape.count, true, tensors);
}

Grid groups(int64_t count) {
  Grid grid;
  grid.groups[0] = static_cast<size_t>(count);
  return grid;
}

struct Forward {
  at::Tensor input, weight, bias, running_mean{}, running_var{}, out, saved_mean, saved_rstd;
  NormShape shape;
  int64_t count;
  bool training = true;
  double momentum = 0, epsilon;
};

void normalise(const Forward& f, const std::string& kind, at::ScalarType parameters) {
  if (f.input.numel() == 0) {
    return;
  }
  Arguments arguments;
  arguments.tensor(f.input).tensor(f.weight).tensor(f.bias).tensor(f.running_mean).tensor(f.running_var);
  arguments.tensor(f.out).tensor(f.saved_mean).tensor(f.saved_rstd).value(f.shape);
  add_number(arguments, f.momentum, f.input.scalar_type());
  add_number(arguments, f.epsilon, f.input.scalar_type());
  Grid grid = groups(f.count);
  const at::ScalarType saved = f.saved_mean.defined() ? f.saved_mean.scalar_type() : parameters;
  const std::string definitions =
      kind + norm_definitions(parameters, saved) + definition_if(f.training, "TRAINING") +
      definition_if(f.weight.defined(), "WEIGHTED") + definition_if(f.bias.defined(), "BIASED") +
      definition_if(f.running_mean.defined(), "RUNNING");
  launch("normalise",
         group_kernel(kNorm, definitions, norm_runs(f.shape, {f.input, f.out}), f.input.scalar_type(),
                      f.input.scalar_type(), grid),
         arguments, grid);
}

struct Backward {
  at::Tensor grad, input, weight, mean, rstd, out, grad_weight{}, grad_bias{};
  NormShape shape;
  int64_t count;
  bool training = true;
  double epsilon = 0;
};

void differentiate(const Backward& b, const std::string& kind, at::ScalarType parameters) {
  if (b.input.numel() == 0) {
    return;
  }
  Arguments arguments;
  arguments.tensor(b.grad).tensor(b.input).tensor(b.weight).tensor(b.mean).tensor(b.rstd).tensor(b.out);
  arguments.tensor(b.grad_weight).tensor(b.grad_bias).value(b.shape);
  add_number(arguments, b.epsilon, b.input.scalar_type());
  Grid grid = groups(b.count);
  const std::string definitions =
      definition("BACKWARD") + kind + norm_definitions(parameters, b.mean.scalar_type()) +
      definition_if(b.training, "TRAINING") + definition_if(b.weight.defined(), "WEIGHTED") +
      definition_if(b.out.defined(), "WANTS_OUT") + definition_if(b.grad_weight.defined(), "WANTS_WEIGHT") +
      definition_if(b.grad_bias.defined(), "WANTS_BIAS");
  launch("differentiate a norm",
         group_kernel(kNorm, definitions, norm_runs(b.shape, {b.grad, b.input, b.out}), b.input.scalar_type(),
                      b.input.scalar_type(), grid),
         arguments, grid);
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The Tensors for the gradients of the input, the weight and the bias; undefined ones are not wanted.
Gradients gradients_of(const at::Tensor& input, at::IntArrayRef parameter_sizes, at::ScalarType parameters,
                       const std::array<bool, 3>& wanted) {
  const auto like_parameters = [&](bool is_wanted) {
    return is_wanted ? at::zeros(parameter_sizes, input.options().dtype(parameters)) : at::Tensor();
  };
  return {wanted[0] ? at::empty(input.sizes(), input.options()) : at::Tensor(), like_parameters(wanted[1]),
          like_parameters(wanted[2])};
}

// A channel's elements in a contiguous tensor.
NormShape channels_of(const at::Tensor& input) {
  const int64_t channels = input.size(1);
  const int64_t samples = input.size(0);
  const int64_t count = input.numel() == 0 ? 0 : input.numel() / (channels * samples);
  return {.parts = samples, .count = count, .step = channels * count, .stride = count};
}

struct NormalisedRows {
  int64_t count;   // of rows
  int64_t length;  // of each

  NormShape shape() const { return {1, length, 0, length}; }
};

NormalisedRows rows_of(const at::Tensor& input, at::IntArrayRef normalized_shape) {
  const auto kept = input.dim() - static_cast<int64_t>(normalized_shape.size());
  TORCH_CHECK(!normalized_shape.empty() && kept >= 0 &&
                  input.sizes().slice(static_cast<size_t>(kept)).equals(normalized_shape),
              "Given normalized_shape=", normalized_shape, ", expected input with shape [*, ",
              normalized_shape, "], but got input of size ", input.sizes());
  NormalisedRows rows{1, 1};
  for (int64_t d = 0; d < input.dim(); ++d) {
    (d < kept ? rows.count : rows.length) *= input.size(d);
  }
  return rows;
}

// The gradients of layer norm's weight and bias; undefined ones are not wanted. On a GPU, parts of the rows
// are added up apart, since there are fewer places in a row than it has work-items.
void differentiate_parameters(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                              const at::Tensor& rstd, const NormalisedRows& rows,
                              const at::Tensor& grad_weight, const at::Tensor& grad_bias) {
  constexpr int64_t kRowsOfPart = 64, kMostParts = 256;
  const int64_t parts =
      limits().is_cpu != 0 ? 1 : std::clamp<int64_t>(rows.count / kRowsOfPart, 1, kMostParts);
  const auto sums_for = [&](const at::Tensor& wanted) {
    return parts == 1 || !wanted.defined()
               ? wanted
               : at::empty({parts, rows.length}, input.options().dtype(statistics_dtype(input)));
  };
  const at::Tensor weights = sums_for(grad_weight);
  const at::Tensor biases = sums_for(grad_bias);
  Arguments arguments;
  arguments.tensor(grad).tensor(input).tensor(mean).tensor(rstd).tensor(weights).tensor(biases);
  arguments.value(rows.count).value(rows.length).value(ceil_div(rows.count, parts));
  Grid grid = linear(rows.length);
  grid.groups[1] = static_cast<size_t>(parts);
  const at::ScalarType sums = (weights.defined() ? weights : biases).scalar_type();
  launch("differentiate a norm",
         kernel(kLayerParameters, definition("IN", input.scalar_type()) +
                                      norm_definitions(sums, mean.scalar_type()) +
                                      definition_if(weights.defined(), "WANTS_WEIGHT") +
                                      definition_if(biases.defined(), "WANTS_BIAS")),
         arguments, grid);
  if (parts > 1) {
    for (const auto& [each, of_parts] : {std::pair(grad_weight, weights), std::pair(grad_bias, biases)}) {
      if (each.defined()) {
        each.copy_(of_parts.sum(0).view(each.sizes()));
      }
    }
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input,
                                                                 at::IntArrayRef normalized_shape,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 double eps) {
  const NormalisedRows rows = rows_of(input, normalized_shape);
  for (const auto* parameter : {&weight, &bias}) {
    TORCH_CHECK(
        !parameter->has_value() || !(*parameter)->defined() || (*parameter)->sizes().equals(normalized_shape),
        "Expected weight and bias to be of same shape as normalized_shape, but got one of shape ",
        (*parameter)->sizes(), " and normalized_shape = ", normalized_shape);
  }
  const at::Tensor in = input.contiguous();
  const at::Tensor w = dense(weight);
  const at::Tensor b = dense(bias);
  at::DimVector sizes(input.sizes());
  for (size_t d = sizes.size() - normalized_shape.size(); d < sizes.size(); ++d) {
    sizes[d] = 1;
  }
  const at::ScalarType parameters = parameters_dtype(input, {w, b});
  // Statistics have the weights' dtype where these are wider.
  const at::ScalarType saved = parameters == input.scalar_type() ? parameters : statistics_dtype(input);
  at::Tensor out = at::empty(in.sizes(), in.options());
  at::Tensor mean = at::empty(sizes, in.options().dtype(saved));
  at::Tensor rstd = at::empty(sizes, in.options().dtype(saved));
  normalise({.input = in,
             .weight = w,
             .bias = b,
             .out = out,
             .saved_mean = mean,
             .saved_rstd = rstd,
             .shape = rows.shape(),
             .count = rows.count,
             .epsilon = eps},
            definition("LAYER"), parameters);
  return {std::move(out), std::move(mean), std::move(rstd)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, at::IntArrayRef normalized_shape,
    const at::Tensor& mean, const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, std::array<bool, 3> output_mask) {
  require_dtype(input.scalar_type(), grad_out);
  const NormalisedRows rows = rows_of(input, normalized_shape);
  const at::Tensor grad = grad_out.contiguous();
  const at::Tensor in = input.contiguous();
  const at::Tensor w = dense(weight);
  const at::ScalarType parameters = parameters_dtype(input, {w, dense(bias)});
  Gradients gradients = gradients_of(in, normalized_shape, parameters, output_mask);
  const auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (output_mask[0]) {
    differentiate({.grad = grad,
                   .input = in,
                   .weight = w,
                   .mean = mean,
                   .rstd = rstd,
                   .out = grad_input,
                   .shape = rows.shape(),
                   .count = rows.count},
                  definition("LAYER"), parameters);
  }
  if ((output_mask[1] || output_mask[2]) && in.numel() != 0) {
    differentiate_parameters(grad, in, mean, rstd, rows, grad_weight, grad_bias);
  }
  return gradients;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    bool training, double momentum, double eps) {
  TORCH_CHECK(input.dim() >= 2, "batch norm needs an input of 2 dimensions or more, not of shape ",
              input.sizes());
  const at::Tensor in = input.contiguous();
  const at::Tensor w = dense(weight);
  const at::Tensor b = dense(bias);
  const at::Tensor mean = running_mean.value_or(at::Tensor());
  const at::Tensor var = running_var.value_or(at::Tensor());
  TORCH_CHECK(training || (mean.defined() && var.defined()),
              "running_mean and running_var must be defined in evaluation mode");
  const at::Tensor dense_mean = dense(running_mean);
  const at::Tensor dense_var = dense(running_var);
  const at::ScalarType parameters = parameters_dtype(input, {w, b, mean, var});
  const int64_t channels = input.size(1);
  const int64_t saved_size = training ? channels : 0;
  at::Tensor out = at::empty(in.sizes(), in.options());
  at::Tensor saved_mean = at::empty({saved_size}, in.options().dtype(parameters));
  at::Tensor saved_rstd = at::empty({saved_size}, in.options().dtype(parameters));
  normalise({.input = in,
             .weight = w,
             .bias = b,
             .running_mean = dense_mean,
             .running_var = dense_var,
             .out = out,
             .saved_mean = saved_mean,
             .saved_rstd = saved_rstd,
             .shape = channels_of(in),
             .count = channels,
             .training = training,
             .momentum = momentum,
             .epsilon = eps},
            "", parameters);
  if (training) {
    if (mean.defined() && !dense_mean.is_same(mean)) {
      mean.copy_(dense_mean);
    }
    if (var.defined() && !dense_var.is_same(var)) {
      var.copy_(dense_var);
    }
  }
  return {out.contiguous(input.suggest_memory_format()), std::move(saved_mean), std::move(saved_rstd)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm_backward(
    const at::Tensor& grad_out, const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& save_mean, const std::optional<at::Tensor>& save_invstd, bool train,
    double eps, std::array<bool, 3> output_mask) {
  require_dtype(input.scalar_type(), grad_out);
  const at::Tensor grad = grad_out.contiguous();
  const at::Tensor in = input.contiguous();
  const at::Tensor w = dense(weight);
  const at::Tensor mean = dense(train ? save_mean : running_mean);
  const at::Tensor rstd = dense(train ? save_invstd : running_var);
  TORCH_CHECK(mean.defined() && rstd.defined(), "batch norm's gradient needs the ",
              train ? "statistics that it saved" : "running statistics");
  const at::ScalarType parameters = parameters_dtype(input, {w, mean, rstd});
  const int64_t channels = input.size(1);
  Gradients gradients = gradients_of(in, channels, parameters, output_mask);
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  differentiate({.grad = grad,
                 .input = in,
                 .weight = w,
                 .mean = mean,
                 .rstd = rstd,
                 .out = grad_input,
                 .grad_weight = grad_weight,
                 .grad_bias = grad_bias,
                 .shape = channels_of(in),
                 .count = channels,
                 .training = train,
                 .epsilon = eps},
                "", parameters);
  if (output_mask[0]) {
    grad_input = grad_input.contiguous(input.suggest_memory_format());
  }
  return gradients;
}

}  // namespace opsmith::compute
