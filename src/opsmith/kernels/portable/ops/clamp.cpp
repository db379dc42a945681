// Operators that keep the larger or the smaller of elements and bounds. NaN, of an element or of a bound,
// stays.
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

bool reject_no_bound(KernelRuntimeContext& context) {
  return reject(context, Error::InvalidArgument,
                "torch.clamp: At least one of 'min' or 'max' must not be None");
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
  if ((min.has_value() && !holds(context, *min, dtype)) ||
      (max.has_value() && !holds(context, *max, dtype)) || !out_is(context, dtype, out) ||
      !takes_bools(context, kClamp, dtype)) {
    return out;
  }
  if (min.has_value() && max.has_value()) {
    return clamp_between<kClamp>(context, dtype, self, ScalarTensor(*min, dtype), ScalarTensor(*max, dtype),
                                 out);
  }
  if (min.has_value()) {
    return binary<kClamp>(context, RealB{}, dtype, self, ScalarTensor(*min, dtype), out, kLarger);
  }
  if (max.has_value()) {
    return binary<kClamp>(context, RealB{}, dtype, self, ScalarTensor(*max, dtype), out, kSmaller);
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
  const ScalarType dtype = common_dtype(self, min);
  if (!fits(context, min, dtype)) {
    return out;
  }
  return binary<kClampMin>(context, Real{}, dtype, self, ScalarTensor(min, dtype), out, kLarger);
}

Tensor& clamp_max_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& max, Tensor& out) {
  const ScalarType dtype = common_dtype(self, max);
  if (!fits(context, max, dtype)) {
    return out;
  }
  return binary<kClampMax>(context, Real{}, dtype, self, ScalarTensor(max, dtype), out, kSmaller);
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
                !(dtype == ScalarType::Byte && !in_executorch() &&
                  (value_of<double>(min_val) <= -1 || value_of<double>(max_val) <= -1)),
                InvalidArgument, out, "cannot do hardtanh on an unsigned type with negative limits");
  const auto limit = [dtype](const Scalar& given) {
    return is_floating(dtype) ? given : Scalar(value_of<int64_t>(given));
  };
  const Scalar min = limit(min_val), max = limit(max_val);
  if (!fits(context, min, dtype) || !fits(context, max, dtype)) {
    return out;
  }
  return clamp_between<kHardtanh>(context, dtype, self, ScalarTensor(min, dtype), ScalarTensor(max, dtype),
                                  out);
}

}  // namespace opsmith::portable::native
