// Normalisations and their gradients. Saved statistics are those of devices, as torch.compile expects them:
// of the dtype in which they are computed, and one for each channel. On the CPU alone, PyTorch rounds them to
// the operand's dtype, and saves none where it does not train.
#include "meta_tensors.h"

#include <ATen/OpMathType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <tuple>

namespace opsmith::meta_functions {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

void check_parameter(const char* name, const OptionalTensor& parameter, at::IntArrayRef shape) {
  TORCH_CHECK(!is_given(parameter) || parameter->sizes() == shape, "Expected ", name,
              " to be of same shape as normalized_shape, but got ", name, " of shape ", parameter->sizes(),
              " and normalized_shape = ", shape);
}

// Parameters have the input's dtype; or Float, both, where it is a half.
void check_dtypes(at::ScalarType input, const OptionalTensor& weight, const OptionalTensor& bias) {
  const OptionalTensor& first = is_given(weight) ? weight : bias;
  const bool mixed =
      is_given(first) && first->scalar_type() == at::kFloat && at::isReducedFloatingType(input);
  const at::ScalarType expected = mixed ? at::kFloat : input;
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    TORCH_CHECK(!is_given(*parameter) || (*parameter)->scalar_type() == expected, "expected scalar type ",
                expected, " but found ", (*parameter)->scalar_type());
  }
}

// Channels-last where that is the only one of both that the input has.
at::Tensor like_image(const at::Tensor& input) {
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  for (const at::MemoryFormat each : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    if (!input.is_contiguous() && input.is_contiguous(each)) {
      format = each;
    }
  }
  return contiguous(input.sizes(), input.scalar_type(), format);
}

// The result, and the statistics that the CPU saves for the gradient: the batch's, and no others.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_of(const at::Tensor& input, bool training,
                                                             at::ScalarType statistics) {
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ", input.dim());
  const at::DimVector saved{training ? input.size(1) : 0};
  return {like_image(input), contiguous(saved, statistics), contiguous(saved, statistics)};
}

// The dtype of batch norm's parameters, which an input of halves may have in Float; checks that all have it.
at::ScalarType parameters_dtype(const at::Tensor& input,
                                std::initializer_list<const OptionalTensor*> parameters) {
  at::ScalarType dtype = input.scalar_type();
  for (const OptionalTensor* each : parameters) {
    if (is_given(*each)) {
      dtype = (*each)->scalar_type();
      break;
    }
  }
  TORCH_CHECK(
      dtype == input.scalar_type() || (dtype == at::kFloat && at::isReducedFloatingType(input.scalar_type())),
      "mixed dtype (CPU): expect parameter to have scalar type of Float");
  for (const OptionalTensor* each : parameters) {
    TORCH_CHECK(!is_given(*each) || (*each)->scalar_type() == dtype,
                "mixed dtype (CPU): all the parameters need to have the same dtype");
  }
  return dtype;
}

// Nothing has no statistics; given ones serve an empty input too.
void check_statistics(const at::Tensor& input, bool training, bool given) {
  TORCH_CHECK(input.numel() != 0 || !training,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  TORCH_CHECK(training || given, "running_mean and running_var must be defined in evaluation mode");
}

void check_channels(const char* name, const OptionalTensor& parameter, int64_t channels) {
  TORCH_CHECK(!is_given(parameter) || parameter->numel() == channels, name, " should contain ", channels,
              " elements not ", parameter->numel());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& input,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          const OptionalTensor& running_mean,
                                                          const OptionalTensor& running_var, bool training,
                                                          double /*momentum*/, double /*eps*/) {
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ", input.dim());
  check_statistics(input, training, is_given(running_mean) && is_given(running_var));
  const int64_t channels = input.size(1);
  check_channels("weight", weight, channels);
  check_channels("bias", bias, channels);
  check_channels("running_mean", running_mean, channels);
  check_channels("running_var", running_var, channels);
  return batch_norm_of(input, training,
                       parameters_dtype(input, {&weight, &bias, &running_mean, &running_var}));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor& /*grad_out*/, const at::Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, const OptionalTensor& save_mean,
    const OptionalTensor& save_invstd, bool /*train*/, double /*eps*/, std::array<bool, 3> mask) {
  const at::ScalarType dtype =
      parameters_dtype(input, {&weight, &running_mean, &running_var, &save_mean, &save_invstd});
  const auto parameter = [&](bool wanted) {
    return wanted ? contiguous({input.size(1)}, dtype) : at::Tensor();
  };
  return {mask[0] ? like_image(input) : at::Tensor(), parameter(mask[1]), parameter(mask[2])};
}

// Of the functional variant, which returns new running statistics too.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_with_statistics(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const at::Tensor& running_mean, const at::Tensor& running_var, bool training, double momentum,
    double eps) {
  return std::tuple_cat(batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps),
                        std::tuple(like(running_mean), like(running_var)));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_without_statistics(
    const at::Tensor& input, const OptionalTensor& /*weight*/, const OptionalTensor& /*bias*/, bool training,
    double /*momentum*/, double /*eps*/) {
  check_statistics(input, training, /*given=*/false);
  return batch_norm_of(input, training, input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_without_training(
    const at::Tensor& input, const OptionalTensor& /*weight*/, const OptionalTensor& /*bias*/,
    const at::Tensor& /*running_mean*/, const at::Tensor& /*running_var*/, double /*momentum*/,
    double /*eps*/) {
  return batch_norm_of(input, /*training=*/false, input.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& input, at::IntArrayRef shape,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias, double /*eps*/) {
  TORCH_CHECK(
      !shape.empty(),
      "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
      "but got normalized_shape = ",
      shape);
  check_parameter("weight", weight, shape);
  check_parameter("bias", bias, shape);
  check_dtypes(input.scalar_type(), weight, bias);
  TORCH_CHECK(static_cast<size_t>(input.dim()) >= shape.size() &&
                  input.sizes().slice(input.dim() - shape.size()) == shape,
              "Given normalized_shape=", shape, ", expected input with shape [*, ", c10::Join(", ", shape),
              "], but got input of size", input.sizes());
  at::DimVector sizes(input.sizes());
  std::fill(sizes.end() - static_cast<ptrdiff_t>(shape.size()), sizes.end(), 1);
  const at::ScalarType statistics = at::toOpMathType(input.scalar_type());
  return {contiguous(input.sizes(), input.scalar_type()), contiguous(sizes, statistics),
          contiguous(sizes, statistics)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& /*grad_out*/, const at::Tensor& input, at::IntArrayRef shape,
    const at::Tensor& /*mean*/, const at::Tensor& /*rstd*/, const OptionalTensor& weight,
    const OptionalTensor& bias, std::array<bool, 3> mask) {
  const bool empty = input.numel() == 0;
  const auto of_parameter = [&](const OptionalTensor& parameter, bool wanted) {
    if (!wanted || !(is_given(parameter) || empty)) {
      return at::Tensor();
    }
    return contiguous(shape, empty ? input.scalar_type() : parameter->scalar_type());
  };
  return {mask[0] ? contiguous(input.sizes(), input.scalar_type()) : at::Tensor(),
          of_parameter(weight, mask[1]), of_parameter(bias, mask[2])};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> group_norm(const at::Tensor& input,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias, int64_t batch,
                                                          int64_t channels, int64_t /*inner*/, int64_t groups,
                                                          double /*eps*/) {
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ", input.dim());
  TORCH_CHECK(groups > 0 && channels % groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
              input.sizes(), " and num_groups = ", groups);
  check_dtypes(input.scalar_type(), weight, bias);
  const at::ScalarType statistics = parameters_dtype(input, {&weight, &bias});
  return {contiguous(input.sizes(), input.scalar_type(), input.suggest_memory_format()),
          contiguous({batch, groups}, statistics), contiguous({batch, groups}, statistics)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> group_norm_backward(
    const at::Tensor& /*grad_out*/, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
    const OptionalTensor& weight, int64_t /*batch*/, int64_t channels, int64_t /*inner*/, int64_t /*groups*/,
    std::array<bool, 3> mask) {
  const at::ScalarType dtype = input.scalar_type();
  at::ScalarType parameters =
      at::promoteTypes(at::promoteTypes(mean.scalar_type(), rstd.scalar_type()), dtype);
  if (is_given(weight)) {
    parameters = weight->scalar_type();
  }
  const auto parameter = [&](bool wanted) {
    return wanted ? contiguous({channels}, parameters) : at::Tensor();
  };
  return {mask[0] ? contiguous(input.sizes(), dtype, input.suggest_memory_format()) : at::Tensor(),
          parameter(mask[1]), parameter(mask[2])};
}

}  // namespace opsmith::meta_functions
