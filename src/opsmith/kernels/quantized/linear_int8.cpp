// opsmith_quantized::linear_int8: a linear layer on quantized activations and weights, with a result in float
// or, requantized, of the activations' dtype.
//
// Computes dequantize → linear → … from the same integers, without making their floats: the
// products are added up exactly, in int32, and scaled once. Weights are symmetric: their zero points are 0.
#include "quantized_dtypes.h"
#include "quantization_functions.h"
#include "int8_matmul.h"
#include "parameters.h"
#include "requantization.h"

#include <optional>

#include "../common/tasks.h"

namespace opsmith::quantized::native {
namespace {

// The grain size, in products.
constexpr int64_t kGrainOfProducts = int64_t{1} << 18;

// That the tensors fit one another; resizes `out`.
bool prepare(KernelRuntimeContext& context, const char* name, const Tensor& input, const Tensor& weight,
             const Tensor& weight_scales, const std::optional<Tensor>& bias, Tensor& out) {
  OPSMITH_CHECK(context, input.scalar_type() == ScalarType::Char || input.scalar_type() == ScalarType::Byte,
                InvalidArgument, false, "%s: `input` is %s and has to be Char or Byte", name,
                name_of(input.scalar_type()));
  if (!check_dtype(context, name, "weight", weight, ScalarType::Char) ||
      !check_dtype(context, name, "weight_scales", weight_scales, ScalarType::Float) ||
      (bias.has_value() && !check_dtype(context, name, "bias", *bias, ScalarType::Float)) ||
      !check_dtype(context, name, "out", out, ScalarType::Float)) {
    return false;
  }
  Dims sizes = sizes_of(input);
  OPSMITH_CHECK(context, sizes.rank > 0 && weight.dim() == 2 && sizes[sizes.rank - 1] == weight.sizes()[1],
                InvalidArgument, false,
                "%s: `weight` has to have 2 dimensions, the second as large as the last of `input`", name);
  const int64_t columns = weight.sizes()[0];
  OPSMITH_CHECK(context, weight.sizes()[1] <= kMostTerms, NotSupported, false,
                "%s: more than %" PRId64 " products to a sum may overflow", name, kMostTerms);
  OPSMITH_CHECK(context, weight_scales.numel() == 1 || weight_scales.numel() == columns, InvalidArgument,
                false, "%s: `weight_scales` has %" PRId64 " elements and has to have %" PRId64 ", or 1", name,
                static_cast<int64_t>(weight_scales.numel()), columns);
  OPSMITH_CHECK(context, !bias.has_value() || bias->numel() == columns, InvalidArgument, false,
                "%s: `bias` has %" PRId64 " elements and has to have %" PRId64, name,
                static_cast<int64_t>(bias->numel()), columns);
  sizes[sizes.rank - 1] = columns;
  return resize(context, out, sizes);
}

// The input less its zero points. Null without memory.
Temporary<int16_t> shifted_input(KernelRuntimeContext& context, const Tensor& input,
                                 const Int8Product& product) {
  const auto shifted = temporary<int16_t>(context, product.m * product.k);
  if (shifted == nullptr) {
    return {};
  }
  parallel(product.m * product.k, kGrain, [&](int64_t begin, int64_t end) {
    int32_t block[kBlock];
    for_pieces({product.m, product.k}, begin, end, [&](int64_t row, int64_t from, int64_t n) {
      const int32_t* const source = integers(input, from, n, block);
      for (int64_t i = 0; i < n; ++i) {
        shifted[from + i] = static_cast<int16_t>(source[i] - product.zero_points[row * product.per_row]);
      }
    });
  });
  return shifted;
}

// The input as panels take it. Null without memory.
Temporary<uint8_t> unsigned_input(KernelRuntimeContext& context, const Int8Product& product) {
  auto input = temporary<uint8_t>(context, product.m * product.k);
  if (input != nullptr) {
    uint8_t* const to = input;
    parallel(product.m * product.k, kGrain, [&](int64_t begin, int64_t end) {
      OPSMITH_BEST(to_unsigned)(product.input + begin, to + begin, end - begin, product.sign_bit);
    });
  }
  return input;
}

// `scales` and `zero_points`: one of each, or as many as rows.
Tensor& multiply(KernelRuntimeContext& context, const Tensor& input, const float* scales,
                 int32_t* zero_points, bool per_row, const Tensor& weight, const Tensor& weight_scales,
                 const std::optional<Tensor>& bias, Tensor& out) {
  const bool is_signed = input.scalar_type() == ScalarType::Char;
  Int8Product product{};
  product.input = static_cast<const uint8_t*>(input.const_data_ptr());
  product.sign_bit = is_signed ? 0x80 : 0;
  product.weight = weight.const_data_ptr<int8_t>();
  product.n = weight.sizes()[0];
  product.k = weight.sizes()[1];
  product.m = product.n == 0 ? 0 : out.numel() / product.n;
  product.scales = scales;
  product.zero_points = zero_points;
  product.per_row = per_row ? 1 : 0;
  product.weight_scales = weight_scales.const_data_ptr<float>();
  product.per_channel = weight_scales.numel() == 1 ? 0 : 1;
  product.bias = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  product.out = out.mutable_data_ptr<float>();
  product.has_dot_products = multiplies_bytes();
  Temporary<int16_t> shifted;
  if (OPSMITH_BEST(needs_shifted)(product)) {
    shifted = shifted_input(context, input, product);
    product.shifted = shifted;
    if (product.shifted == nullptr) {
      return out;
    }
  }
  for (int64_t i = 0; i < (per_row ? product.m : 1); ++i) {
    zero_points[i] += product.sign_bit;
  }
  const int64_t cost = product.m * product.k;
  const int64_t panels = OPSMITH_BEST(packs_panels)(product) ? product.n / kPanel : 0;
  Temporary<uint8_t> as_unsigned;
  if (panels > 0) {
    if (product.sign_bit != 0) {
      as_unsigned = unsigned_input(context, product);
      if (as_unsigned == nullptr) {
        return out;
      }
      product.input = as_unsigned;
      product.sign_bit = 0;
    }
    const int64_t bytes = ceil_divided(product.k, 4) * 4 * kPanel;
    if (!run_tasks<int8_t>(context, panels, grain_size(cost * kPanel, kGrainOfProducts), bytes,
                           [&](int64_t panel, int8_t* packed) {
                             OPSMITH_BEST(int8_panel)(product, panel * kPanel, packed);
                           })) {
      return out;
    }
  }
  // A multiple of 4 columns for each thread: the kernel takes four at a time.
  const int64_t first = panels * kPanel, groups = ceil_divided(product.n - first, 4);
  parallel(groups, grain_size(cost * 4, kGrainOfProducts), [&](int64_t begin, int64_t end) {
    OPSMITH_BEST(int8_matmul)(product, first + begin * 4, std::min(first + end * 4, product.n));
  });
  return out;
}

bool check_zero_point(KernelRuntimeContext& context, const char* name, const Tensor& input,
                      int64_t zero_point) {
  const Integers range = integers_of(input.scalar_type());
  return (zero_point >= range.least && zero_point <= range.greatest) ||
         reject(context, Error::InvalidArgument, "%s: the input's zero point, %lld, is not within %lld…%lld",
                name, static_cast<long long>(zero_point), static_cast<long long>(range.least),
                static_cast<long long>(range.greatest));
}

}  // namespace

Tensor& linear_int8_out(KernelRuntimeContext& context, const Tensor& input, double input_scale,
                        int64_t input_zero_point, const Tensor& weight, const Tensor& weight_scales,
                        const std::optional<Tensor>& bias, Tensor& out) {
  constexpr const char* kName = "linear_int8";
  if (!prepare(context, kName, input, weight, weight_scales, bias, out) ||
      !check_zero_point(context, kName, input, input_zero_point)) {
    return out;
  }
  const auto scale = static_cast<float>(input_scale);
  auto zero_point = static_cast<int32_t>(input_zero_point);
  return multiply(context, input, &scale, &zero_point, false, weight, weight_scales, bias, out);
}

Tensor& linear_int8_per_token_out(KernelRuntimeContext& context, const Tensor& input,
                                  const Tensor& input_scales, const Tensor& input_zero_points,
                                  const Tensor& weight, const Tensor& weight_scales,
                                  const std::optional<Tensor>& bias, Tensor& out) {
  constexpr const char* kName = "linear_int8.per_token";
  if (!prepare(context, kName, input, weight, weight_scales, bias, out)) {
    return out;
  }
  // One for all rows, as choose_qparams gives them, or one for each.
  const bool is_shared = input_scales.numel() == 1 && input_zero_points.numel() == 1 &&
                         check_numbers(context, kName, "scales", input_scales) &&
                         check_numbers(context, kName, "zero_points", input_zero_points);
  const Channels tokens = is_shared
                              ? Channels{1, std::max<int64_t>(input.numel(), 1)}
                              : channels_of_tokens(context, kName, input, input_scales, input_zero_points);
  if (tokens.count == 0 || out.numel() == 0) {
    return out;
  }
  const auto scales = temporary<float>(context, tokens.count);
  const auto zero_points = temporary<int32_t>(context, tokens.count);
  if (scales == nullptr || zero_points == nullptr) {
    return out;
  }
  const bool has_elements = input.numel() != 0;
  for (int64_t i = 0; i < tokens.count; ++i) {
    scales[i] = has_elements ? static_cast<float>(number_at(input_scales, i)) : 0;
    const int64_t zero_point = has_elements ? integer_at(input_zero_points, i) : 0;
    if (!check_zero_point(context, kName, input, zero_point)) {
      return out;
    }
    zero_points[i] = static_cast<int32_t>(zero_point);
  }
  // Without elements, there are rows all the same: each is the bias.
  return multiply(context, input, scales, zero_points, has_elements && !is_shared, weight, weight_scales,
                  bias, out);
}

// The result is quantized again; the weight comes packed, see requantized_matmul.h.
Tensor& linear_int8_requantized_out(KernelRuntimeContext& context, const Tensor& input, double input_scale,
                                    int64_t input_zero_point, const Tensor& weight,
                                    const Tensor& weight_scales, const std::optional<Tensor>& bias,
                                    int64_t out_features, double output_scale, int64_t output_zero_point,
                                    int64_t output_min, int64_t output_max, Tensor& out) {
  constexpr const char* kName = "linear_int8.requantized";
  const QuantizedResult result{output_scale, output_zero_point, output_min, output_max};
  if (!check_bytes(context, kName, "input", input) ||
      !check_dtype(context, kName, "out", out, input.scalar_type()) ||
      !check_dtype(context, kName, "weight", weight, ScalarType::Char) ||
      !check_values(context, kName, "input", input, {input_scale, input_zero_point}) ||
      !check_result(context, kName, out, result) ||
      !check_columns(context, kName, weight_scales, bias, out_features)) {
    return out;
  }
  Dims sizes = sizes_of(input);
  const int64_t depth = sizes.rank == 0 ? 0 : sizes[sizes.rank - 1];
  const int64_t panels = ceil_divided(out_features, kPackedPanel), steps = ceil_divided(depth, kPackedStep);
  OPSMITH_CHECK(
      context,
      sizes.rank > 0 && weight.dim() == 4 && weight.sizes()[0] == 1 && weight.sizes()[1] == panels &&
          weight.sizes()[2] == 1 + steps && weight.sizes()[3] == kPackedBytes,
      InvalidArgument, out, "%s: `weight` has to be packed: [1, %" PRId64 ", %" PRId64 ", %" PRId64 "]",
      kName, panels, 1 + steps, kPackedBytes);
  OPSMITH_CHECK(context, depth <= kMostTerms, NotSupported, out,
                "%s: more than %" PRId64 " products to a sum may overflow", kName, kMostTerms);
  sizes[sizes.rank - 1] = out_features;
  if (!resize(context, out, sizes) || out.numel() == 0) {
    return out;
  }
  RequantizedProduct product{};
  product.m = out.numel() / out_features;
  product.n = out_features;
  product.steps = steps;
  const auto owned = requantization(context, input_scale, weight_scales, bias, result);
  const int64_t row_bytes = steps * kPackedStep;
  const auto rows = temporary<uint8_t>(context, product.m * row_bytes);
  if (owned.parameters.multipliers == nullptr || rows == nullptr) {
    return out;
  }
  uint8_t* const to = rows;
  const auto* const from = static_cast<const uint8_t*>(input.const_data_ptr());
  const uint8_t sign_bit = sign_bit_of(input);
  parallel(product.m, grain_size(depth), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      OPSMITH_BEST(to_unsigned)(from + m * depth, to + m * row_bytes, depth, sign_bit);
      std::fill(to + m * row_bytes + depth, to + (m + 1) * row_bytes, uint8_t{0});
    }
  });
  product.input = to;
  product.zero_point = static_cast<uint8_t>(static_cast<uint8_t>(input_zero_point) ^ sign_bit);
  product.weight = weight.const_data_ptr<int8_t>();
  product.requantization = owned.parameters;
  product.out = static_cast<uint8_t*>(out.mutable_data_ptr());
  product.out_stride = out_features;
  constexpr int64_t kPanels = 4;
  const int64_t cost = std::max<int64_t>(1, product.m * row_bytes * kPackedPanel * kPanels);
  parallel(ceil_divided(panels, kPanels), grain_size(cost, kGrainOfProducts),
           [&](int64_t begin, int64_t end) {
             OPSMITH_BEST(requantized_matmul)(product, begin * kPanels, std::min(end * kPanels, panels));
           });
  return out;
}

}  // namespace opsmith::quantized::native
