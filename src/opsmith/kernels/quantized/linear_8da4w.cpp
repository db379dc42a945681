// opsmith_quantized::linear_8da4w: a linear layer whose input is quantized as it runs, each row to int8 with
// a scale and zero point of its own, and whose weight has 4 bits and a scale for each group along a row.
//
// Computes torchao's choose_qparams_affine → quantize_affine → dequantize_affine → linear without making
// floats of the integers: the products of a group are added up exactly, and scaled. The weight comes packed,
// see grouped_matmul.h; it is symmetric: its zero points are 0.
#include "grouped_matmul.h"
#include "quantized_dtypes.h"
#include "quantization_functions.h"
#include "parameters.h"

#include <optional>

namespace opsmith::quantized::native {
namespace {

constexpr const char* kName = "linear_8da4w";

// The grain size, in products.
constexpr int64_t kGrainOfProducts = int64_t{1} << 19;

// That the tensors fit one another; resizes `out`.
bool prepare(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
             const Tensor& weight_scales, const std::optional<Tensor>& bias, int64_t out_features,
             Tensor& out) {
  if (!check_dtype(context, kName, "input", input, ScalarType::Float) ||
      !check_dtype(context, kName, "weight", weight, ScalarType::Byte) ||
      !check_dtype(context, kName, "weight_scales", weight_scales, ScalarType::Float) ||
      (bias.has_value() && !check_dtype(context, kName, "bias", *bias, ScalarType::Float)) ||
      !check_dtype(context, kName, "out", out, ScalarType::Float)) {
    return false;
  }
  OPSMITH_CHECK(context, out_features >= 0, InvalidArgument, false, "%s: `out_features` is %" PRId64, kName,
                out_features);
  const int64_t panels = ceil_divided(out_features, kGroupedPanel);
  OPSMITH_CHECK(context, weight.dim() == 4 && weight.sizes()[0] == panels && weight.sizes()[3] == kStepBytes,
                InvalidArgument, false,
                "%s: `weight` has to be packed for %" PRId64 " features: [%" PRId64
                ", groups, steps, %" PRId64 "]",
                kName, out_features, panels, kStepBytes);
  const int64_t groups = weight.sizes()[1], steps = weight.sizes()[2];
  OPSMITH_CHECK(context,
                weight_scales.dim() == 3 && weight_scales.sizes()[0] == panels &&
                    weight_scales.sizes()[1] == groups && weight_scales.sizes()[2] == kGroupedPanel,
                InvalidArgument, false,
                "%s: `weight_scales` has to have the sizes [%" PRId64 ", %" PRId64 ", %" PRId64 "]", kName,
                panels, groups, kGroupedPanel);
  Dims sizes = sizes_of(input);
  const int64_t depth = sizes.rank == 0 ? 0 : sizes[sizes.rank - 1];
  OPSMITH_CHECK(
      context,
      sizes.rank > 0 && groups > 0 && depth % groups == 0 && ceil_divided(depth / groups, kStep) == steps,
      InvalidArgument, false,
      "%s: the last dimension of `input`, %" PRId64 ", does not have the weight's %" PRId64
      " groups of %" PRId64 " steps of %" PRId64,
      kName, depth, groups, steps, kStep);
  OPSMITH_CHECK(context, depth / groups <= kLargestGroup, NotSupported, false,
                "%s: more than %" PRId64 " products to a sum may overflow", kName, kLargestGroup);
  OPSMITH_CHECK(context, !bias.has_value() || (bias->dim() == 1 && bias->numel() == out_features),
                InvalidArgument, false, "%s: `bias` has to have 1 dimension of %" PRId64, kName,
                out_features);
  sizes[sizes.rank - 1] = out_features;
  return resize(context, out, sizes);
}

}  // namespace

Tensor& linear_8da4w_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                         const Tensor& weight_scales, const std::optional<Tensor>& bias, int64_t out_features,
                         Tensor& out) {
  if (!prepare(context, input, weight, weight_scales, bias, out_features, out) || out.numel() == 0) {
    return out;
  }
  GroupedProduct product{};
  product.n = out_features;
  product.m = out.numel() / out_features;
  product.groups = weight.sizes()[1];
  product.steps = weight.sizes()[2];
  product.weight = weight.const_data_ptr<uint8_t>();
  product.weight_scales = weight_scales.const_data_ptr<float>();
  product.bias = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  product.out = out.mutable_data_ptr<float>();
  const int64_t rows = product.m, depth = input.sizes()[input.dim() - 1];
  const int64_t row_bytes = product.groups * product.steps * kStep;
  const auto values = temporary<int8_t>(context, rows * row_bytes);
  const auto offsets = temporary<int32_t>(context, rows * product.groups);
  const auto scales = temporary<float>(context, rows);
  const auto zero_points = temporary<int32_t>(context, rows);
  if (values == nullptr || offsets == nullptr || scales == nullptr || zero_points == nullptr) {
    return out;
  }
  product.input = values;
  product.offsets = offsets;
  product.scales = scales;
  product.zero_points = zero_points;
  const float* const from = input.const_data_ptr<float>();
  parallel(rows, grain_size(depth), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      QuantizedRow row{values + m * row_bytes, offsets + m * product.groups, 0, 0};
      OPSMITH_BEST(quantize_row)(from + m * depth, depth, product.groups, product.steps, row);
      scales[m] = row.scale;
      zero_points[m] = row.zero_point;
    }
  });
  // An even number of panels for each thread, where there are several: the kernel takes two at a time.
  const int64_t panels = weight.sizes()[0];
  const int64_t cost = std::max<int64_t>(1, rows * row_bytes * 4 * kGroupedPanel);
  parallel(ceil_divided(panels, 4), grain_size(cost, kGrainOfProducts), [&](int64_t begin, int64_t end) {
    OPSMITH_BEST(grouped_matmul)(product, begin * 4, std::min(end * 4, panels));
  });
  return out;
}

}  // namespace opsmith::quantized::native
