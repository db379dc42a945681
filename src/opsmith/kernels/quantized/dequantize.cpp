// dequantize_per_tensor, dequantize_per_channel and dequantize_per_token: from integers to floats.
//
// Source: torch/ao/quantization/fx/_decomposed.py, whose values these are, bit for bit. Per tensor it
// converts to the result's dtype first, and rounds to it at each step; per channel and per token it takes
// integer zero points off exactly, calculates in the scales' dtype and converts at the end.
#include "quantized_dtypes.h"
#include "quantization_functions.h"
#include "parameters.h"

#include <optional>

namespace opsmith::quantized::native {
namespace {

// Whether the operators' selected programs have tensors of the dtype.
constexpr bool per_tensor_has(ScalarType dtype) {
  return selected("quantized_decomposed::dequantize_per_tensor.out", dtype) ||
         selected("quantized_decomposed::dequantize_per_tensor.Tensor_out", dtype);
}
constexpr bool by_channels_has(ScalarType dtype) {
  return selected("quantized_decomposed::dequantize_per_channel.out", dtype) ||
         selected("quantized_decomposed::dequantize_per_token.out", dtype);
}

bool check(KernelRuntimeContext& context, const char* name, const Tensor& input, ScalarType dtype,
           ScalarType out_dtype, Tensor& out) {
  OPSMITH_CHECK(context, integers_of(dtype).bits != 0, NotSupported, false,
                "%s: quantized values are Byte, Char, UInt16, Short or Int, not %s", name, name_of(dtype));
  OPSMITH_CHECK(context, is_floating(out_dtype), NotSupported, false,
                "%s: the result is Float, Double, Half or BFloat16, not %s", name, name_of(out_dtype));
  return check_dtype(context, name, "input", input, dtype) &&
         check_dtype(context, name, "out", out, out_dtype) && resize_as(context, name, input, out);
}

template <class C>
C* place_for_floats(const Tensor& out, int64_t begin, C* block) {
  constexpr ScalarType kDtype = sizeof(C) == sizeof(float) ? ScalarType::Float : ScalarType::Double;
  return out.scalar_type() == kDtype ? static_cast<C*>(out.mutable_data_ptr()) + begin : block;
}

// ---- per tensor

template <class C>
void all_at_once(void (*row)(const int32_t*, C*, int64_t, C, C), const Tensor& input, double scale,
                 int64_t zero_point, Tensor& out) {
  parallel(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    int32_t block[kBlock];
    C result[kBlock];
    for_pieces({1, input.numel()}, begin, end, [&](int64_t, int64_t from, int64_t n) {
      C* const place = place_for_floats(out, from, result);
      row(integers(input, from, n, block), place, n, static_cast<C>(zero_point), static_cast<C>(scale));
    });
  });
}

// To Half and BFloat16, rounded at each step.
[[maybe_unused]] void step_by_step(const Tensor& input, double scale, int64_t zero_point, Tensor& out) {
  const ScalarType dtype = out.scalar_type();
  const float zero = rounded(static_cast<float>(zero_point), dtype);
  const auto factor = static_cast<float>(scale);
  parallel(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    int32_t block[kBlock];
    float result[kBlock];
    for_pieces({1, input.numel()}, begin, end, [&](int64_t, int64_t from, int64_t n) {
      const int32_t* const source = integers(input, from, n, block);
      for (int64_t i = 0; i < n; ++i) {
        result[i] = rounded(rounded(static_cast<float>(source[i]), dtype) - zero, dtype) * factor;
      }
      put_floats(out, from, n, result);
    });
  });
}

Tensor& per_tensor(KernelRuntimeContext& context, const char* name, const Tensor& input, double scale,
                   int64_t zero_point, ScalarType dtype, std::optional<ScalarType> out_dtype, Tensor& out) {
  if (!check(context, name, input, dtype, out_dtype.value_or(out.scalar_type()), out)) {
    return out;
  }
  if (out.scalar_type() == ScalarType::Float) {
    all_at_once<float>(OPSMITH_BEST(dequantize_float), input, scale, zero_point, out);
  }
  if constexpr (per_tensor_has(ScalarType::Double)) {
    if (out.scalar_type() == ScalarType::Double) {
      all_at_once<double>(OPSMITH_BEST(dequantize_double), input, scale, zero_point, out);
    }
  }
  if constexpr (per_tensor_has(ScalarType::Half) || per_tensor_has(ScalarType::BFloat16)) {
    if (is_half_precision(out.scalar_type())) {
      step_by_step(input, scale, zero_point, out);
    }
  }
  return out;
}

// ---- per channel and per token

// Calculated in C.
template <class C>
struct Dequantizer {
  void (*row)(const int32_t*, C*, int64_t, C, C);
  void (*each)(const int32_t*, C*, int64_t, const C*, const C*);
  const Tensor& input;
  const Tensor& out;

  void row_of(int64_t begin, int64_t n, C zero, C scale) const {
    int32_t source[kBlock];
    C result[kBlock];
    C* const place = place_for_floats(out, begin, result);
    row(integers(input, begin, n, source), place, n, zero, scale);
    finish(begin, n, place, result);
  }
  void each_of(int64_t begin, int64_t n, const C* zero, const C* scale) const {
    int32_t source[kBlock];
    C result[kBlock];
    C* const place = place_for_floats(out, begin, result);
    each(integers(input, begin, n, source), place, n, zero, scale);
    finish(begin, n, place, result);
  }

 private:
  void finish(int64_t begin, int64_t n, const C* place, const C* result) const {
    if (place == result) {
      put_floats(out, begin, n, result);
    }
  }
};

template <class C>
void dequantize(KernelRuntimeContext& context, const Dequantizer<C>& dequantizer, const Channels& channels,
                const Tensor& scales, const Tensor* zero_points) {
  const bool repeated = has_short_rows(channels);
  const int64_t period = repeated ? period_of(channels) : channels.count;
  const auto factors = temporary<C>(context, 2 * period);
  if (factors == nullptr) {
    return;
  }
  C* const zeros = factors + period;
  for (int64_t i = 0; i < period; ++i) {
    const int64_t channel = repeated ? i / channels.inner % channels.count : i;
    factors[i] = static_cast<C>(number_at(scales, channel));
    zeros[i] = zero_points != nullptr ? static_cast<C>(number_at(*zero_points, channel)) : C(0);
  }
  parallel(dequantizer.input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (repeated) {
      for_periods(period, begin, end, [&](int64_t position, int64_t from, int64_t n) {
        dequantizer.each_of(from, n, zeros + position, factors + position);
      });
    } else {
      for_pieces(channels, begin, end, [&](int64_t channel, int64_t from, int64_t n) {
        dequantizer.row_of(from, n, zeros[channel], factors[channel]);
      });
    }
  });
}

// In two steps, one of which is in double: differences of integers that float does not hold are exact, and
// rounded to float once; those with zero points of Float are rounded to it before scales of Double multiply
// them.
template <class Difference, class C>
void dequantize_stepwise(void (*row)(const int32_t*, Difference*, int64_t, Difference, Difference),
                         const Tensor& input, const Tensor& out, const Channels& channels,
                         const Tensor& scales, const Tensor& zero_points) {
  parallel(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    int32_t block[kBlock];
    Difference difference[kBlock];
    C result[kBlock];
    for_pieces(channels, begin, end, [&](int64_t channel, int64_t from, int64_t n) {
      row(integers(input, from, n, block), difference, n,
          static_cast<Difference>(number_at(zero_points, channel)), Difference(1));
      const auto scale = static_cast<C>(number_at(scales, channel));
      for (int64_t i = 0; i < n; ++i) {
        result[i] = static_cast<C>(difference[i]) * scale;
      }
      put_floats(out, from, n, result);
    });
  });
}

// Whether float holds all differences of the values and zero points, which are integers.
bool fits_float(const Tensor& input, const Tensor& zero_points) {
  constexpr int64_t kMost = 1 << 22;
  if (integers_of(input.scalar_type()).bits > 16) {
    return false;
  }
  for (int64_t i = 0; i < zero_points.numel(); ++i) {
    const int64_t zero = integer_at(zero_points, i);
    if (zero < -kMost || zero > kMost) {
      return false;
    }
  }
  return true;
}

[[maybe_unused]] void by_channels_in_double(KernelRuntimeContext& context, const Tensor& input,
                                            const Channels& channels, const Tensor& scales,
                                            const Tensor* zero_points, Tensor& out) {
  if (zero_points != nullptr && zero_points->scalar_type() == ScalarType::Float) {
    return dequantize_stepwise<float, double>(OPSMITH_BEST(dequantize_float), input, out, channels, scales,
                                              *zero_points);
  }
  dequantize<double>(context,
                     {OPSMITH_BEST(dequantize_double), OPSMITH_BEST(dequantize_each_double), input, out},
                     channels, scales, zero_points);
}

void by_channels(KernelRuntimeContext& context, const Tensor& input, const Channels& channels,
                 const Tensor& scales, const Tensor* zero_points, Tensor& out) {
  if constexpr (by_channels_has(ScalarType::Double)) {
    if (scales.scalar_type() == ScalarType::Double) {
      return by_channels_in_double(context, input, channels, scales, zero_points, out);
    }
  }
  if (zero_points != nullptr && !is_floating(zero_points->scalar_type()) &&
      !fits_float(input, *zero_points)) {
    return dequantize_stepwise<double, float>(OPSMITH_BEST(dequantize_double), input, out, channels, scales,
                                              *zero_points);
  }
  dequantize<float>(context,
                    {OPSMITH_BEST(dequantize_float), OPSMITH_BEST(dequantize_each_float), input, out},
                    channels, scales, zero_points);
}

}  // namespace

Tensor& dequantize_per_tensor_out(KernelRuntimeContext& context, const Tensor& input, double scale,
                                  int64_t zero_point, int64_t /*quant_min*/, int64_t /*quant_max*/,
                                  ScalarType dtype, std::optional<ScalarType> out_dtype, Tensor& out) {
  return per_tensor(context, "dequantize_per_tensor", input, scale, zero_point, dtype, out_dtype, out);
}

Tensor& dequantize_per_tensor_tensor_out(KernelRuntimeContext& context, const Tensor& input,
                                         const Tensor& scale, const Tensor& zero_point, int64_t /*quant_min*/,
                                         int64_t /*quant_max*/, ScalarType dtype,
                                         std::optional<ScalarType> out_dtype, Tensor& out) {
  constexpr const char* kName = "dequantize_per_tensor.tensor";
  if (!check_one(context, kName, "scale", scale) || !check_one(context, kName, "zero_point", zero_point)) {
    return out;
  }
  return per_tensor(context, kName, input, number_at(scale, 0), integer_at(zero_point, 0), dtype, out_dtype,
                    out);
}

Tensor& dequantize_per_channel_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& scales,
                                   const std::optional<Tensor>& zero_points, int64_t axis, int64_t quant_min,
                                   int64_t quant_max, ScalarType dtype, std::optional<ScalarType> out_dtype,
                                   Tensor& out) {
  constexpr const char* kName = "dequantize_per_channel";
  if (!check_range(context, kName, quant_min, quant_max, dtype) ||
      !check(context, kName, input, dtype, out_dtype.value_or(out.scalar_type()), out)) {
    return out;
  }
  const Tensor* const zeros = zero_points.has_value() ? &*zero_points : nullptr;
  const Channels channels = channels_along(context, kName, input, axis, scales, zeros);
  if (channels.count != 0 && input.numel() != 0) {
    by_channels(context, input, channels, scales, zeros, out);
  }
  return out;
}

Tensor& dequantize_per_token_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& scales,
                                 const Tensor& zero_points, int64_t /*quant_min*/, int64_t /*quant_max*/,
                                 ScalarType dtype, ScalarType output_dtype, Tensor& out) {
  constexpr const char* kName = "dequantize_per_token";
  if (!check(context, kName, input, dtype, output_dtype, out)) {
    return out;
  }
  const Channels tokens = channels_of_tokens(context, kName, input, scales, zero_points);
  if (tokens.count != 0 && input.numel() != 0) {
    by_channels(context, input, tokens, scales, &zero_points, out);
  }
  return out;
}

}  // namespace opsmith::quantized::native
