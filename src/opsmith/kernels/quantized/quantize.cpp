// quantize_per_tensor, quantize_per_channel and quantize_per_token: from floats to integers.
//
// Source: torch/ao/quantization/fx/_decomposed.py, whose values these are, bit for bit: Half and BFloat16 are
// converted to float first, as is Double, which programs alone may have; the scale's inverse is a factor; per
// token, the zero point is added before rounding, else after it; where scales or zero points are Double, all
// is calculated in double.
#include "quantized_dtypes.h"
#include "quantization_functions.h"
#include "parameters.h"

namespace opsmith::quantized::native {
namespace {

// Where the calculation is in C: its functions, and what all elements share.
template <class C>
struct Quantizer {
  using Row = void(const float*, int32_t*, int64_t, C, C, C, C);
  using Each = void(const float*, int32_t*, int64_t, const C*, const C*, C, C);

  Row* row;
  Each* each;  // null: none
  const Tensor& input;
  const Tensor& out;
  C low, high;

  void row_of(int64_t begin, int64_t n, C inverse, C zero) const {
    float source[kBlock];
    int32_t result[kBlock];
    int32_t* const place = place_for(out, begin, result);
    row(floats(input, begin, n, source), place, n, inverse, zero, low, high);
    put(out, begin, n, place);
  }
  void each_of(int64_t begin, int64_t n, const C* inverse, const C* zero) const {
    float source[kBlock];
    int32_t result[kBlock];
    int32_t* const place = place_for(out, begin, result);
    each(floats(input, begin, n, source), place, n, inverse, zero, low, high);
    put(out, begin, n, place);
  }
};

template <class C>
void quantize(KernelRuntimeContext& context, const Quantizer<C>& quantizer, const Channels& channels,
              const Tensor& scales, const Tensor& zero_points) {
  const bool repeated = quantizer.each != nullptr && has_short_rows(channels);
  const int64_t period = repeated ? period_of(channels) : channels.count;
  const auto inverses = temporary<C>(context, 2 * period);
  if (inverses == nullptr) {
    return;
  }
  C* const zeros = inverses + period;
  for (int64_t i = 0; i < period; ++i) {
    const int64_t channel = repeated ? i / channels.inner % channels.count : i;
    // The inverse is calculated in the scales' own dtype.
    const double scale = number_at(scales, channel);
    inverses[i] = scales.scalar_type() == ScalarType::Double
                      ? static_cast<C>(1.0 / scale)
                      : static_cast<C>(1.0f / static_cast<float>(scale));
    zeros[i] = static_cast<C>(number_at(zero_points, channel));
  }
  parallel(quantizer.input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (repeated) {
      for_periods(period, begin, end, [&](int64_t position, int64_t from, int64_t n) {
        quantizer.each_of(from, n, inverses + position, zeros + position);
      });
    } else {
      for_pieces(channels, begin, end, [&](int64_t channel, int64_t from, int64_t n) {
        quantizer.row_of(from, n, inverses[channel], zeros[channel]);
      });
    }
  });
}

// The checks of all three.
bool prepare(KernelRuntimeContext& context, const char* name, const Tensor& input, int64_t quant_min,
             int64_t quant_max, ScalarType dtype, Tensor& out) {
  OPSMITH_CHECK(context, is_floating(input.scalar_type()), InvalidArgument, false,
                "%s: `input` is %s and has to be Float, Double, Half or BFloat16", name,
                name_of(input.scalar_type()));
  return check_range(context, name, quant_min, quant_max, dtype) &&
         check_dtype(context, name, "out", out, dtype) && resize_as(context, name, input, out);
}

Tensor& per_tensor(KernelRuntimeContext& context, const char* name, const Tensor& input, double scale,
                   int64_t zero_point, int64_t quant_min, int64_t quant_max, ScalarType dtype, Tensor& out) {
  if (!prepare(context, name, input, quant_min, quant_max, dtype, out)) {
    return out;
  }
  const Quantizer<float> quantizer{
      OPSMITH_BEST(quantize_float), nullptr, input, out, static_cast<float>(quant_min),
      static_cast<float>(quant_max)};
  const auto inverse = static_cast<float>(1.0 / scale);
  const auto zero = static_cast<float>(zero_point);
  if (input.scalar_type() == ScalarType::Float && out.element_size() == 1) {
    const float* const x = input.const_data_ptr<float>();
    uint8_t* const y = static_cast<uint8_t*>(out.mutable_data_ptr());
    parallel(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
      OPSMITH_BEST(quantize_to_bytes)(x + begin, y + begin, end - begin, inverse, zero, quantizer.low,
                                      quantizer.high);
    });
    return out;
  }
  parallel(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for_pieces({1, input.numel()}, begin, end,
               [&](int64_t, int64_t from, int64_t n) { quantizer.row_of(from, n, inverse, zero); });
  });
  return out;
}

}  // namespace

Tensor& quantize_per_tensor_out(KernelRuntimeContext& context, const Tensor& input, double scale,
                                int64_t zero_point, int64_t quant_min, int64_t quant_max, ScalarType dtype,
                                Tensor& out) {
  return per_tensor(context, "quantize_per_tensor", input, scale, zero_point, quant_min, quant_max, dtype,
                    out);
}

Tensor& quantize_per_tensor_tensor_out(KernelRuntimeContext& context, const Tensor& input,
                                       const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                                       int64_t quant_max, ScalarType dtype, Tensor& out) {
  constexpr const char* kName = "quantize_per_tensor.tensor";
  if (!check_one(context, kName, "scale", scale) || !check_one(context, kName, "zero_point", zero_point)) {
    return out;
  }
  return per_tensor(context, kName, input, number_at(scale, 0), integer_at(zero_point, 0), quant_min,
                    quant_max, dtype, out);
}

Tensor& quantize_per_channel_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& scales,
                                 const Tensor& zero_points, int64_t axis, int64_t quant_min,
                                 int64_t quant_max, ScalarType dtype, Tensor& out) {
  constexpr const char* kName = "quantize_per_channel";
  if (!prepare(context, kName, input, quant_min, quant_max, dtype, out)) {
    return out;
  }
  const Channels channels = channels_along(context, kName, input, axis, scales, &zero_points);
  if (channels.count == 0 || input.numel() == 0) {
    return out;
  }
  if constexpr (selected("quantized_decomposed::quantize_per_channel.out", ScalarType::Double)) {
    if (scales.scalar_type() == ScalarType::Double) {
      quantize<double>(context,
                       {OPSMITH_BEST(quantize_double), OPSMITH_BEST(quantize_each_double), input, out,
                        static_cast<double>(quant_min), static_cast<double>(quant_max)},
                       channels, scales, zero_points);
      return out;
    }
  }
  quantize<float>(context,
                  {OPSMITH_BEST(quantize_float), OPSMITH_BEST(quantize_each_float), input, out,
                   static_cast<float>(quant_min), static_cast<float>(quant_max)},
                  channels, scales, zero_points);
  return out;
}

Tensor& quantize_per_token_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& scales,
                               const Tensor& zero_points, int64_t quant_min, int64_t quant_max,
                               ScalarType dtype, Tensor& out) {
  constexpr const char* kName = "quantize_per_token";
  if (!prepare(context, kName, input, quant_min, quant_max, dtype, out)) {
    return out;
  }
  const Channels tokens = channels_of_tokens(context, kName, input, scales, zero_points);
  if (tokens.count == 0 || input.numel() == 0) {
    return out;
  }
  if constexpr (selected("quantized_decomposed::quantize_per_token.out", ScalarType::Double)) {
    if (scales.scalar_type() == ScalarType::Double || zero_points.scalar_type() == ScalarType::Double) {
      quantize<double>(context,
                       {OPSMITH_BEST(quantize_shifted_double), nullptr, input, out,
                        static_cast<double>(quant_min), static_cast<double>(quant_max)},
                       tokens, scales, zero_points);
      return out;
    }
  }
  quantize<float>(context,
                  {OPSMITH_BEST(quantize_shifted_float), nullptr, input, out, static_cast<float>(quant_min),
                   static_cast<float>(quant_max)},
                  tokens, scales, zero_points);
  return out;
}

}  // namespace opsmith::quantized::native
