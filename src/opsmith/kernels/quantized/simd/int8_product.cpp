// Int8Product, a tile of rows of the input by rows of the weight at a time, along k.
#include "quantization_functions.h"

#include <algorithm>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

inline void store(const Int8Product& p, int64_t m, int64_t n, int32_t sum) {
  const float scale = p.scales[m * p.per_row] * p.weight_scales[n * p.per_channel];
  const float value = static_cast<float>(sum) * scale;
  p.out[m * p.n + n] = p.bias != nullptr ? value + p.bias[n] : value;
}

}  // namespace
}  // namespace opsmith::quantized::OPSMITH_ISA

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "int8_product_vnni.h"
#else
#include "int8_product_int16.h"
#endif
