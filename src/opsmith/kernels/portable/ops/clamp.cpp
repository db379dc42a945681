// Operators that keep the larger or the smaller of elements and bounds. NaN, of an element or of a bound,
// stays.
#include <algorithm>
#include <limits>

#include "../elementary_functions.h"
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {
namespace {

constexpr char kMaximum[] = "maximum.out";
constexpr char kMinimum[] = "minimum.out";
constexpr char kClamp[] = "clamp.out";
constexpr char kClampTensor[] = "clamp.Tensor_out";
constexpr char kClampMin[] = "clamp_min.out";
constexpr char kClampMax[] = "clamp_max.out";
constexpr char kClampMinTensor[] = "clamp_min.Tensor_out";
constexpr char kClampMaxTensor[] = "clamp_max.Tensor_out";
constexpr char kHardtanh[] = "hardtanh.out";

constexpr auto kLarger = [](auto a, auto b) { return portable::maximum(a, b); };
constexpr auto kSmaller = [](auto a, auto b) { return portable::minimum(a, b); };

// Where the bounds are the wrong way round, the upper one wins.
template <class C>
struct Clamped {
  C operator()(C a, C lower, C upper) const { return portable::minimum(portable::maximum(a, lower), upper); }
};

template <const char* Name>
Tensor& clamp_between(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self,
                      const Tensor& lower, const Tensor& upper, Tensor& out) {
  return takes_bools(context, Name, dtype)
             ? ternary_of<Name>(context, RealB{}, dtype, self, lower, upper, out,
                                [](auto type) { return Clamped<typename decltype(type)::type>{}; })
             : out;
}

enum class Side : bool { kLower, kUpper };

// Whether elements of `dtype` are bounded by `limit`, which then is one of them, as ATen makes it.
bool takes_limit(KernelRuntimeContext& context, Side side, Scalar& limit, ScalarType dtype) {
  if (!caller::limits_saturate || !is_integral(dtype) || limit.isFloatingPoint()) {
    return fits(context, limit, dtype);
  }
  const bool is_unsigned = dtype == ScalarType::Byte;
  const int bits = 8 * static_cast<int>(executorch::runtime::elementSize(dtype));
  const int64_t highest = std::numeric_limits<int64_t>::max() >> (64 - bits - (is_unsigned ? 1 : 0));
  const int64_t lowest = is_unsigned ? 0 : -highest - 1;
  const auto value = value_of<int64_t>(limit);
  OPSMITH_CHECK(context, side == Side::kLower ? value <= highest : value >= lowest, InvalidArgument, false,
                "Clamp %s value %lld is outside the representable range of %s",
                side == Side::kLower ? "min" : "max", static_cast<long long>(value), name_of(dtype));
  limit = Scalar(std::clamp(value, lowest, highest));
  return true;
}

bool reject_no_bound(KernelRuntimeContext& context) {
  return reject(context, Error::InvalidArgument,
                "torch.clamp: At least one of 'min' or 'max' must not be None");
}

template <const char* Name, class F>
Tensor& clamp_to(KernelRuntimeContext& context, Side side, const Tensor& self, Scalar limit, Tensor& out,
                 const F& f) {
  const ScalarType dtype = common_dtype_for(out, self, limit);
  if (!takes_limit(context, side, limit, dtype)) {
    return out;
  }
  return binary<Name>(context, Real{}, dtype, self, ScalarTensor(limit, dtype), out, f);
}

}  // namespace

Tensor& maximum_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return binary<kMaximum>(context, RealB{}, common_dtype(self, other), self, other, out, kLarger);
}

Tensor& minimum_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return binary<kMinimum>(context, RealB{}, common_dtype(self, other), self, other, out, kSmaller);
}

Tensor& clamp_out(KernelRuntimeContext& context, const Tensor& self, const std::optional<Scalar>& min,
                  const std::optional<Scalar>& max, Tensor& out) {
  Operands operands;
  operands.add(self);
  if (min.has_value()) {
    operands.add(*min);
  }
  if (max.has_value()) {
    operands.add(*max);
  }
  const ScalarType dtype = operands.dtype();
  std::optional<Scalar> lower = min, upper = max;
  if ((lower.has_value() &&
       !(takes_limit(context, Side::kLower, *lower, dtype) && holds(context, *lower, dtype))) ||
      (upper.has_value() &&
       !(takes_limit(context, Side::kUpper, *upper, dtype) && holds(context, *upper, dtype))) ||
      !out_is(context, dtype, out) || !takes_bools(context, kClamp, dtype)) {
    return out;
  }
  if (lower.has_value() && upper.has_value()) {
    return clamp_between<kClamp>(context, dtype, self, ScalarTensor(*lower, dtype),
                                 ScalarTensor(*upper, dtype), out);
  }
  if (lower.has_value()) {
    return binary<kClamp>(context, RealB{}, dtype, self, ScalarTensor(*lower, dtype), out, kLarger);
  }
  if (upper.has_value()) {
    return binary<kClamp>(context, RealB{}, dtype, self, ScalarTensor(*upper, dtype), out, kSmaller);
  }
  reject_no_bound(context);
  return out;
}

Tensor& clamp_tensor_out(KernelRuntimeContext& context, const Tensor& self, const std::optional<Tensor>& min,
                         const std::optional<Tensor>& max, Tensor& out) {
  if (min.has_value() && max.has_value()) {
    return clamp_between<kClampTensor>(context, common_dtype(self, *min, *max), self, *min, *max, out);
  }
  if (min.has_value()) {
    return binary<kClampTensor>(context, RealB{}, common_dtype(self, *min), self, *min, out, kLarger);
  }
  if (max.has_value()) {
    return binary<kClampTensor>(context, RealB{}, common_dtype(self, *max), self, *max, out, kSmaller);
  }
  reject_no_bound(context);
  return out;
}

Tensor& clamp_min_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& min, Tensor& out) {
  return clamp_to<kClampMin>(context, Side::kLower, self, min, out, kLarger);
}

Tensor& clamp_max_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& max, Tensor& out) {
  return clamp_to<kClampMax>(context, Side::kUpper, self, max, out, kSmaller);
}

Tensor& clamp_min_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& min,
                             Tensor& out) {
  return binary<kClampMinTensor>(context, RealB{}, common_dtype(self, min), self, min, out, kLarger);
}

Tensor& clamp_max_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& max,
                             Tensor& out) {
  return binary<kClampMaxTensor>(context, RealB{}, common_dtype(self, max), self, max, out, kSmaller);
}

Tensor& hardtanh_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& min_val,
                     const Scalar& max_val, Tensor& out) {
  const ScalarType dtype = self.scalar_type();
  OPSMITH_CHECK(context, dtype != ScalarType::Bool, InvalidArgument, out,
                "Bool inputs not supported for hardtanh");
  // ATen takes the limits of whole numbers as Long.
  const ScalarType held = is_floating(dtype) || in_executorch() ? dtype : ScalarType::Long;
  // ExecuTorch takes integers below 0 to Byte modulo 256.
  const auto takes = [&](const Scalar& limit) {
    return limit.isFloatingPoint() ? holds(context, limit, held) : fits(context, limit, held);
  };
  if (!takes(min_val) || !takes(max_val) || !out_is(context, dtype, out)) {
    return out;
  }
  OPSMITH_CHECK(context,
                !(dtype == ScalarType::Byte && !in_executorch() && !caller::limits_saturate &&
                  (value_of<double>(min_val) <= -1 || value_of<double>(max_val) <= -1)),
                InvalidArgument, out, "cannot do hardtanh on an unsigned type with negative limits");
  const auto limit = [dtype](const Scalar& given) {
    return is_floating(dtype) ? given : Scalar(value_of<int64_t>(given));
  };
  Scalar min = limit(min_val), max = limit(max_val);
  if (!takes_limit(context, Side::kLower, min, dtype) || !takes_limit(context, Side::kUpper, max, dtype)) {
    return out;
  }
  return clamp_between<kHardtanh>(context, dtype, self, ScalarTensor(min, dtype), ScalarTensor(max, dtype),
                                  out);
}

}  // namespace opsmith::portable::native
