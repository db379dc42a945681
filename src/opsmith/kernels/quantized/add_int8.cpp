// opsmith_quantized::add_int8: the sum of two quantized tensors, quantized again.
//
// Computes two dequantize → add (→ relu) → quantize, rounded once; an activation is a narrower range of the
// result.
#include "parameters.h"
#include "quantized_dtypes.h"
#include "requantization.h"
#include "quantization_functions.h"

namespace opsmith::quantized::native {
namespace {

constexpr const char* kName = "add_int8";

// A tensor's bytes in the order of `like`, which has its shape. Null without memory.
Temporary<uint8_t> in_order_of(KernelRuntimeContext& context, const Tensor& tensor, const Tensor& like) {
  const auto bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  if (same_layout(tensor, like)) {
    return Temporary<uint8_t>(bytes);
  }
  auto copy = temporary<uint8_t>(context, tensor.numel());
  uint8_t* const to = copy;
  Dims index;
  index.rank = tensor.dim();
  for (int64_t i = 0; to != nullptr && i < tensor.numel(); ++i) {
    int64_t from = 0, place = 0;
    for (int64_t d = 0; d < index.rank; ++d) {
      from += index[d] * tensor.strides()[static_cast<size_t>(d)];
      place += index[d] * like.strides()[static_cast<size_t>(d)];
    }
    to[place] = bytes[from];
    for (int64_t d = index.rank - 1; d >= 0 && ++index[d] == tensor.sizes()[static_cast<size_t>(d)]; --d) {
      index[d] = 0;
    }
  }
  return copy;
}

bool prepare(KernelRuntimeContext& context, const Tensor& a, const Tensor& b, Tensor& out) {
  if (!check_bytes(context, kName, "a", a) || !check_dtype(context, kName, "b", b, a.scalar_type()) ||
      !check_dtype(context, kName, "out", out, a.scalar_type())) {
    return false;
  }
  OPSMITH_CHECK(context, sizes_of(a) == sizes_of(b), InvalidArgument, false,
                "%s: `a` and `b` have to have one shape", kName);
  return resize_as(context, kName, a, out);
}

}  // namespace

Tensor& add_int8_out(KernelRuntimeContext& context, const Tensor& a, double a_scale, int64_t a_zero_point,
                     const Tensor& b, double b_scale, int64_t b_zero_point, double output_scale,
                     int64_t output_zero_point, int64_t output_min, int64_t output_max, Tensor& out) {
  if (!prepare(context, a, b, out) || !check_values(context, kName, "a", a, {a_scale, a_zero_point}) ||
      !check_values(context, kName, "b", b, {b_scale, b_zero_point}) ||
      !check_result(context, kName, out, {output_scale, output_zero_point, output_min, output_max})) {
    return out;
  }
  const auto other = in_order_of(context, b, a);
  if (other == nullptr) {
    return out;
  }
  const uint8_t sign_bit = sign_bit_of(a);
  const double left = a_scale / output_scale, right = b_scale / output_scale;
  const auto zero = [sign_bit](int64_t zero_point) { return static_cast<double>(zero_point + sign_bit); };
  const Int8Addition sum{static_cast<float>(left),
                         static_cast<float>(right),
                         static_cast<float>(-zero(a_zero_point) * left - zero(b_zero_point) * right),
                         static_cast<float>(output_min - output_zero_point),
                         static_cast<float>(output_max - output_zero_point),
                         static_cast<int32_t>(output_zero_point),
                         sign_bit};
  const auto* const from = static_cast<const uint8_t*>(a.const_data_ptr());
  const uint8_t* const added = other;
  auto* const to = static_cast<uint8_t*>(out.mutable_data_ptr());
  parallel(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    OPSMITH_BEST(add_int8)(from + begin, added + begin, to + begin, end - begin, sum);
  });
  return out;
}

}  // namespace opsmith::quantized::native
