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
#include "../arch/x86/int8_matmul_vnni.h"
#elif defined(OPSMITH_ISA_NEON)
#include "int8_matmul_int16.h"
#include "../arch/arm/int8_matmul_neon.h"
#else

namespace opsmith::quantized::OPSMITH_ISA {

bool needs_shifted(const Int8Product&) {
  return true;
}

bool packs_panels(const Int8Product&) {
  return false;
}

void int8_panel(const Int8Product&, int64_t, int8_t*) {}

}  // namespace opsmith::quantized::OPSMITH_ISA

#if defined(__AVX2__)
#include "../arch/x86/int8_matmul_avx2.h"
#else
#include "int8_matmul_int16.h"

namespace opsmith::quantized::OPSMITH_ISA {

void int8_matmul(const Int8Product& p, int64_t begin, int64_t end) {
  shifted_product(p, begin, end);
}

}  // namespace opsmith::quantized::OPSMITH_ISA
#endif
#endif
