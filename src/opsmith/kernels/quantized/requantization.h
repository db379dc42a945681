// How results of 8 bits are quantized again: the arguments that say so, checked, and what they come to.
#pragma once

#include "../common/temporary.h"
#include "quantized_dtypes.h"
#include "requantized_matmul.h"

#include <cmath>
#include <optional>

namespace opsmith::quantized {

// Values with a scale and zero point; of a result, within bounds, which an activation may have narrowed.
struct QuantizedValues {
  double scale;
  int64_t zero_point;
};
struct QuantizedResult {
  double scale;
  int64_t zero_point;
  int64_t least, greatest;
};

inline uint8_t sign_bit_of(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Char ? 0x80 : 0;
}

inline bool check_bytes(KernelRuntimeContext& context, const char* name, const char* argument,
                        const Tensor& tensor) {
  OPSMITH_CHECK(context, tensor.scalar_type() == ScalarType::Char || tensor.scalar_type() == ScalarType::Byte,
                InvalidArgument, false, "%s: `%s` is %s and has to be Char or Byte", name, argument,
                name_of(tensor.scalar_type()));
  return true;
}

inline bool check_values(KernelRuntimeContext& context, const char* name, const char* argument,
                         const Tensor& tensor, const QuantizedValues& values) {
  const Integers range = integers_of(tensor.scalar_type());
  OPSMITH_CHECK(context, values.zero_point >= range.least && values.zero_point <= range.greatest,
                InvalidArgument, false,
                "%s: the zero point of `%s`, %" PRId64 ", is not within %" PRId64 "…%" PRId64, name, argument,
                values.zero_point, range.least, range.greatest);
  OPSMITH_CHECK(context, std::isfinite(values.scale), InvalidArgument, false,
                "%s: the scale of `%s` is not finite", name, argument);
  return true;
}

inline bool check_result(KernelRuntimeContext& context, const char* name, const Tensor& out,
                         const QuantizedResult& result) {
  const Integers range = integers_of(out.scalar_type());
  if (!check_values(context, name, "out", out, {result.scale, result.zero_point})) {
    return false;
  }
  OPSMITH_CHECK(context, result.scale > 0, InvalidArgument, false, "%s: `output_scale` has to be positive",
                name);
  OPSMITH_CHECK(
      context,
      range.least <= result.least && result.least <= result.greatest && result.greatest <= range.greatest,
      InvalidArgument, false,
      "%s: `output_min` and `output_max`, %" PRId64 " and %" PRId64 ", have to be ascending within %" PRId64
      "…%" PRId64,
      name, result.least, result.greatest, range.least, range.greatest);
  return true;
}

// The weight's scales and the bias of `columns` columns: float32, one for each.
inline bool check_columns(KernelRuntimeContext& context, const char* name, const Tensor& weight_scales,
                          const std::optional<Tensor>& bias, int64_t columns) {
  if (!check_dtype(context, name, "weight_scales", weight_scales, ScalarType::Float) ||
      (bias.has_value() && !check_dtype(context, name, "bias", *bias, ScalarType::Float))) {
    return false;
  }
  const auto fits = [&](const char* what, const Tensor& values) {
    OPSMITH_CHECK(context, values.dim() == 1 && values.numel() == columns, InvalidArgument, false,
                  "%s: `%s` has to have 1 dimension of %" PRId64, name, what, columns);
    return true;
  };
  return fits("weight_scales", weight_scales) && (!bias.has_value() || fits("bias", *bias));
}

// A Requantization, with the memory that it refers to. `multipliers` is null where there was none.
struct OwnedRequantization {
  Temporary<float> memory;
  Requantization parameters;
};

inline OwnedRequantization requantization(KernelRuntimeContext& context, double input_scale,
                                          const Tensor& weight_scales, const std::optional<Tensor>& bias,
                                          const QuantizedResult& result) {
  const int64_t columns = weight_scales.numel();
  OwnedRequantization owned{temporary<float>(context, 2 * columns), {}};
  float* const multipliers = owned.memory;
  if (multipliers == nullptr) {
    return owned;
  }
  const float* const scales = weight_scales.const_data_ptr<float>();
  const float* const added = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  for (int64_t i = 0; i < columns; ++i) {
    multipliers[i] = static_cast<float>(input_scale * static_cast<double>(scales[i]) / result.scale);
    multipliers[columns + i] =
        added == nullptr ? 0.0f : static_cast<float>(static_cast<double>(added[i]) / result.scale);
  }
  owned.parameters = {
      multipliers, multipliers + columns, static_cast<float>(result.least - result.zero_point),
      static_cast<float>(result.greatest - result.zero_point), static_cast<int32_t>(result.zero_point)};
  return owned;
}

}  // namespace opsmith::quantized
