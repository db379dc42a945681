// choose_qparams and choose_qparams_per_token_asymmetric: the scale and the zero point for values, from their
// least and greatest.
//
// Source: torch/ao/quantization/fx/_decomposed.py and determine_qparams in torch/ao/quantization/utils.py.
// Half and BFloat16 are rounded to at each step, as there.
#include "quantized_dtypes.h"
#include "quantization_functions.h"
#include "parameters.h"

#include <cmath>
#include <limits>
#include <tuple>

namespace opsmith::quantized::native {
namespace {

struct Extrema {
  float least, greatest;
};

// NaN where one is among the elements, of which there is at least one.
Extrema extrema_of(const Tensor& input, int64_t begin, int64_t end) {
  float block[kBlock];
  Extrema found{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  bool has_nan = false;
  for_pieces({1, input.numel()}, begin, end, [&](int64_t, int64_t from, int64_t n) {
    has_nan |= OPSMITH_BEST(extrema)(floats(input, from, n, block), n, &found.least, &found.greatest);
  });
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return has_nan ? Extrema{kNan, kNan} : found;
}

// As torch.min and torch.max with 0, which keep NaN.
float at_most_zero(float value) {
  return value > 0 ? 0.0f : value;
}
float at_least_zero(float value) {
  return value < 0 ? 0.0f : value;
}

float at_least(float value, float bound) {
  return value < bound ? bound : value;
}

bool is_input(KernelRuntimeContext& context, const char* name, const Tensor& input) {
  return input.scalar_type() == ScalarType::Float || is_half_precision(input.scalar_type()) ||
         reject(context, Error::InvalidArgument, "%s: `input` is %s and has to be Float, Half or BFloat16",
                name, name_of(input.scalar_type()));
}

bool are_outputs(KernelRuntimeContext& context, const char* name, const Tensor& scale,
                 const Tensor& zero_point) {
  return check_dtype(context, name, "scale_out", scale, ScalarType::Double) &&
         check_dtype(context, name, "zero_point_out", zero_point, ScalarType::Long);
}

}  // namespace

std::tuple<Tensor&, Tensor&> choose_qparams_tensor_out(KernelRuntimeContext& context, const Tensor& input,
                                                       int64_t quant_min, int64_t quant_max, double eps,
                                                       ScalarType dtype, Tensor& scale_out,
                                                       Tensor& zero_point_out) {
  constexpr const char* kName = "choose_qparams.tensor";
  const std::tuple<Tensor&, Tensor&> outs{scale_out, zero_point_out};
  if (!is_input(context, kName, input) || !are_outputs(context, kName, scale_out, zero_point_out)) {
    return outs;
  }
  OPSMITH_CHECK(context, integers_of(dtype).bits != 0, NotSupported, outs,
                "%s: values are quantized to Byte, Char, UInt16, Short or Int, not to %s", kName,
                name_of(dtype));
  OPSMITH_CHECK(context, quant_min <= 0 && quant_max >= 0 && quant_min < quant_max, InvalidArgument, outs,
                "%s: quant_min %" PRId64 " and quant_max %" PRId64 " do not enclose 0", kName, quant_min,
                quant_max);
  OPSMITH_CHECK(context, input.numel() > 0, InvalidArgument, outs, "%s: `input` has no elements", kName);
  if (!resize(context, scale_out, {1}) || !resize(context, zero_point_out, {1})) {
    return outs;
  }
  const auto [least, greatest] = extrema_of(input, 0, input.numel());
  const float low = at_most_zero(least);
  const float high = at_least_zero(greatest);
  const ScalarType of = input.scalar_type();
  const float range = rounded(rounded(high - low, of) / static_cast<float>(quant_max - quant_min), of);
  const float scale = at_least(range, static_cast<float>(eps));
  // In int32, which may wrap around where the quotient is no number.
  const auto rounded_low = static_cast<int32_t>(std::nearbyint(low / scale));
  const auto zero =
      static_cast<int32_t>(static_cast<uint32_t>(quant_min) - static_cast<uint32_t>(rounded_low));
  *scale_out.mutable_data_ptr<double>() = scale;
  *zero_point_out.mutable_data_ptr<int64_t>() = zero < quant_min   ? quant_min
                                                : zero > quant_max ? quant_max
                                                                   : zero;
  return outs;
}

std::tuple<Tensor&, Tensor&> choose_qparams_per_token_asymmetric_out(KernelRuntimeContext& context,
                                                                     const Tensor& input,
                                                                     ScalarType /*dtype*/, Tensor& scale_out,
                                                                     Tensor& zero_point_out) {
  constexpr const char* kName = "choose_qparams_per_token_asymmetric";
  const std::tuple<Tensor&, Tensor&> outs{scale_out, zero_point_out};
  if (!is_input(context, kName, input) || !are_outputs(context, kName, scale_out, zero_point_out)) {
    return outs;
  }
  Dims sizes = sizes_of(input);
  OPSMITH_CHECK(context, sizes.rank > 0 && sizes[sizes.rank - 1] > 0, InvalidArgument, outs,
                "%s: the last dimension of `input` has no elements", kName);
  const int64_t length = sizes[sizes.rank - 1];
  sizes[sizes.rank - 1] = 1;
  if (!resize(context, scale_out, sizes) || !resize(context, zero_point_out, sizes)) {
    return outs;
  }
  constexpr float kLeast = -128, kGreatest = 127;
  const ScalarType of = input.scalar_type();
  const auto in = [of](float value) { return rounded(value, of); };
  const float eps = in(std::numeric_limits<float>::epsilon());
  double* const scales = scale_out.mutable_data_ptr<double>();
  int64_t* const zeros = zero_point_out.mutable_data_ptr<int64_t>();
  parallel(input.numel() / length, grain_size(length), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const auto [least, greatest] = extrema_of(input, token * length, (token + 1) * length);
      const float low = at_most_zero(least);
      const float high = at_least_zero(greatest);
      const float scale = at_least(in(in(high - low) / (kGreatest - kLeast)), eps);
      const float low_error = in(kLeast + in(low / scale));
      const float high_error = in(kGreatest + in(high / scale));
      const float zero =
          in(low_error + high_error) > 0 ? in(kLeast - in(low / scale)) : in(kGreatest - in(high / scale));
      scales[token] = scale;
      const float clamped = zero < kLeast ? kLeast : zero > kGreatest ? kGreatest : zero;
      zeros[token] = static_cast<int64_t>(std::nearbyint(clamped));
    }
  });
  return outs;
}

}  // namespace opsmith::quantized::native
