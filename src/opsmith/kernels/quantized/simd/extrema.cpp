// The least and the greatest element of a row, for the choice of quantization parameters.
#include "quantization_functions.h"

namespace opsmith::quantized::OPSMITH_ISA {

bool extrema(const float* x, int64_t n, float* least, float* greatest) {
  // Lanes are apart because a single minimum may not be reordered.
  constexpr int64_t kLanes = 16;
  float low[kLanes], high[kLanes];
  int32_t unordered[kLanes] = {};
  for (int64_t j = 0; j < kLanes; ++j) {
    low[j] = *least;
    high[j] = *greatest;
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float value = x[i + j];
      low[j] = value < low[j] ? value : low[j];
      high[j] = value > high[j] ? value : high[j];
      unordered[j] |= value != value ? 1 : 0;
    }
  }
  for (; i < n; ++i) {
    low[0] = x[i] < low[0] ? x[i] : low[0];
    high[0] = x[i] > high[0] ? x[i] : high[0];
    unordered[0] |= x[i] != x[i] ? 1 : 0;
  }
  bool has_nan = false;
  for (int64_t j = 0; j < kLanes; ++j) {
    *least = low[j] < *least ? low[j] : *least;
    *greatest = high[j] > *greatest ? high[j] : *greatest;
    has_nan = has_nan || unordered[j] != 0;
  }
  return has_nan;
}

}  // namespace opsmith::quantized::OPSMITH_ISA
