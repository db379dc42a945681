// GroupedProduct, a tile of rows of the input by panels of the weight at a time; and its rows.
#include "quantization_functions.h"
#include "rounding.h"

#include <cfloat>

namespace opsmith::quantized::OPSMITH_ISA {

// Source: _choose_qparams_affine and _quantize_affine of torchao/quantization/quant_primitives.py, whose
// values these are. A range that is not finite makes the row NaN, as its zero times infinity there.
void quantize_row(const float* x, int64_t k, int64_t groups, int64_t steps, QuantizedRow& row) {
  constexpr float kLeast = -128, kGreatest = 127;
  float low = 0, high = 0;
  const bool has_nan = extrema(x, k, &low, &high);
  const float range = (high - low) / (kGreatest - kLeast);
  const float scale = range < FLT_MIN ? FLT_MIN : range;
  if (has_nan || !(scale <= FLT_MAX)) {
    row.scale = NAN;
    row.zero_point = 0;
    for (int64_t i = 0; i < groups * steps * kStep; ++i) {
      row.values[i] = 0;
    }
    for (int64_t group = 0; group < groups; ++group) {
      row.offsets[group] = 0;
    }
    return;
  }
  const float zero = static_cast<float>(clamped(kLeast - round_even(low / scale), kLeast, kGreatest));
  const float inverse = 1.0f / scale;
  const auto shift = static_cast<int32_t>(zero);
  row.scale = scale;
  row.zero_point = static_cast<int32_t>(0x01010101u * static_cast<uint8_t>(shift));
  const int64_t length = k / groups, filled = steps * kStep;
  for (int64_t group = 0; group < groups; ++group) {
    const float* const from = x + group * length;
    int8_t* const to = row.values + group * filled;
    int32_t sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int32_t value = clamped(round_even(from[i] * inverse) + zero, kLeast, kGreatest);
      to[i] = static_cast<int8_t>(value);
      sum += value - shift;
    }
    for (int64_t i = length; i < filled; ++i) {
      to[i] = 0;
    }
    row.offsets[group] = 8 * sum;
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "../arch/x86/grouped_matmul_vnni.h"
#elif defined(__AVX2__)
#include "../arch/x86/grouped_matmul_avx2.h"
#else
#include "grouped_matmul_int16.h"
#endif
