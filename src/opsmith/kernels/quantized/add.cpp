// quantized_decomposed::add: the sum of two quantized tensors of bytes, quantized.
//
// As ExecuTorch's kernel has it: each operand's value is (byte - zero point)·scale in float, and the sum
// times the inverse of the result's scale is rounded to the nearest even before its zero point is added.
#include <algorithm>
#include <cmath>

#include "../common/parallel.h"
#include "quantized_dtypes.h"

namespace opsmith::quantized::native {
namespace {

constexpr const char* kName = "quantized add";
constexpr int64_t kGrain = 16384;

// The values of all bytes.
struct Values {
  float of[256];

  Values(double scale, int64_t zero_point) {
    for (int32_t byte = 0; byte < 256; ++byte) {
      of[byte] = static_cast<float>(byte - zero_point) * static_cast<float>(scale);
    }
  }
};

}  // namespace

Tensor& add_out(KernelRuntimeContext& context, const Tensor& a, double a_scale, int64_t a_zero_point,
                int64_t a_quant_min, int64_t a_quant_max, const Tensor& b, double b_scale,
                int64_t b_zero_point, int64_t b_quant_min, int64_t b_quant_max, double out_scale,
                int64_t out_zero_point, int64_t out_quant_min, int64_t out_quant_max, Tensor& out) {
  for (const Tensor* each : {&a, &b, static_cast<const Tensor*>(&out)}) {
    if (!check_dtype(context, kName, each == &a ? "a" : each == &b ? "b" : "out", *each, ScalarType::Byte)) {
      return out;
    }
  }
  OPSMITH_CHECK(context, sizes_of(a) == sizes_of(b), InvalidArgument, out, "%s: both operands have one shape",
                kName);
  if (!check_range(context, kName, a_quant_min, a_quant_max, ScalarType::Byte) ||
      !check_range(context, kName, b_quant_min, b_quant_max, ScalarType::Byte) ||
      !check_range(context, kName, out_quant_min, out_quant_max, ScalarType::Byte) ||
      !resize_as(context, kName, a, out) || !are_contiguous(context, {&a, &b, &out})) {
    return out;
  }
  const Values left(a_scale, a_zero_point), right(b_scale, b_zero_point);
  const float inverse = 1.0f / static_cast<float>(out_scale);
  const auto zero = static_cast<float>(out_zero_point);
  const auto low = static_cast<float>(out_quant_min), high = static_cast<float>(out_quant_max);
  const uint8_t *const x = a.const_data_ptr<uint8_t>(), *const y = b.const_data_ptr<uint8_t>();
  uint8_t* const z = out.mutable_data_ptr<uint8_t>();
  parallel(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float sum = std::nearbyint((left.of[x[i]] + right.of[y[i]]) * inverse) + zero;
      z[i] = static_cast<uint8_t>(std::min(high, std::max(low, sum)));
    }
  });
  return out;
}

}  // namespace opsmith::quantized::native
