// Arithmetic of two operands: the four operations, quotients rounded to integers, remainders, atan2.
#include "../complex_numbers.h"
#include "../pointwise_bodies.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>

namespace opsmith::portable::native {
namespace {

// The four operations take a number as they calculate with it, not rounded to Half or BFloat16.
constexpr int kOther = 2;

constexpr char kAdd[] = "add.out";
constexpr char kAddScalar[] = "add.Scalar_out";
constexpr char kSub[] = "sub.out";
constexpr char kSubScalar[] = "sub.Scalar_out";
constexpr char kMul[] = "mul.out";
constexpr char kMulScalar[] = "mul.Scalar_out";
constexpr char kDiv[] = "div.out";
constexpr char kDivScalar[] = "div.Scalar_out";
constexpr char kDivMode[] = "div.out_mode";
constexpr char kDivScalarMode[] = "div.Scalar_mode_out";
constexpr char kFmod[] = "fmod.Tensor_out";
constexpr char kFmodScalar[] = "fmod.Scalar_out";
constexpr char kRemainder[] = "remainder.Tensor_out";
constexpr char kRemainderScalar[] = "remainder.Scalar_out";
constexpr char kRemainderScalarTensor[] = "remainder.Scalar_Tensor_out";
constexpr char kAtan2[] = "atan2.out";
constexpr char kFloorDivide[] = "floor_divide.out";
constexpr char kRsubScalar[] = "rsub.Scalar_out";

// Integers are added and multiplied as unsigned ones, so that they wrap instead of overflowing.
template <class C, bool Wraps = std::is_integral_v<C> && !std::is_same_v<C, bool>>
struct Wrapping {
  using type = C;
};
template <class C>
struct Wrapping<C, true> {
  using type = std::common_type_t<unsigned, std::make_unsigned_t<C>>;
};
template <class C>
using wrapping_t = typename Wrapping<C>::type;

template <class C>
struct Added {
  wrapping_t<C> alpha;
  C operator()(C a, C b) const {
    return static_cast<C>(static_cast<wrapping_t<C>>(a) + alpha * static_cast<wrapping_t<C>>(b));
  }
};

constexpr auto kProduct = [](auto a, auto b) {
  using W = wrapping_t<decltype(a)>;
  return static_cast<W>(a) * static_cast<W>(b);
};

constexpr auto kQuotient = [](auto a, auto b) { return a / b; };

// Whether alpha is of a kind that goes with the dtype; rejects the call where not.
bool is_kind_of_alpha(KernelRuntimeContext& context, ScalarType dtype, const Scalar& alpha) {
  OPSMITH_CHECK(context, !alpha.isBoolean() || dtype == ScalarType::Bool, InvalidArgument, false,
                "Boolean alpha only supported for Boolean results.");
  OPSMITH_CHECK(context, !alpha.isFloatingPoint() || is_floating(dtype), InvalidArgument, false,
                "For integral input tensors, argument alpha must not be a floating point number.");
  return true;
}

// The same, and whether the dtype can hold it; in ExecuTorch, the type that is calculated with.
bool accepts_alpha(KernelRuntimeContext& context, ScalarType dtype, const Scalar& alpha,
                   const Scalar& factor) {
  return is_kind_of_alpha(context, dtype, alpha) &&
         (dtype != ScalarType::Byte || holds(context, alpha, dtype)) &&
         fits(context, factor, in_executorch() ? compute_dtype(dtype) : dtype);
}

Scalar negative_of(const Scalar& number) {
  return number.isFloatingPoint()
             ? Scalar(-number.to<double>())
             : Scalar(static_cast<int64_t>(0 - static_cast<uint64_t>(value_of<int64_t>(number))));
}

template <const char* Name, template <class> class Operation, class Dtypes>
Tensor& with_alpha(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self,
                   const Tensor& other, const Scalar& alpha, Tensor& out) {
  return binary_of<Name>(
      context, dtypes, dtype, self, other, out,
      [&](auto type) {
        using C = typename decltype(type)::type;
        return Operation<C>{static_cast<wrapping_t<C>>(value_of<C>(alpha))};
      },
      kOther);
}

// out = self + factor other of complex numbers, whose parts are added alike.
template <const char* Name>
Tensor& complex_sum(KernelRuntimeContext& context, const Tensor& self, const Tensor& other,
                    const Scalar& factor, Tensor& out) {
  if (!are_of_one_complex_dtype(context, out, {&self, &other}) || !have_parts(context, {&self, &other}) ||
      !resize_to_broadcast(context, out, {&self, &other}) || !one_dim_order(context, {&out, &self, &other})) {
    return out;
  }
  Parts a(self), b(other), sums(out);
  with_compute_dtype<Name>(context, Floating{}, part_of(out.scalar_type()), [&](auto type) {
    using C = typename decltype(type)::type;
    pointwise<C(C, C)>(context, sums.tensor(), Added<C>{value_of<C>(factor)}, a.tensor(), b.tensor());
  });
  return out;
}

template <const char* Name>
Tensor& add(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
            const Scalar& alpha, Tensor& out) {
  if (!accepts_alpha(context, dtype, alpha, alpha)) {
    return out;
  }
  return with_alpha<Name, Added>(context, RealB{}, dtype, self, other, alpha, out);
}

bool reject_bool(KernelRuntimeContext& context) {
  return reject(
      context, Error::InvalidArgument,
      "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
      "mask, use the `~` or `logical_not()` operator instead.");
}

bool is_no_bool(KernelRuntimeContext& context, const Tensor& self) {
  return self.scalar_type() != ScalarType::Bool || reject_bool(context);
}

// `has_bools`: an operand is of bools, which ExecuTorch subtracts from numbers and ATen does not.
template <const char* Name>
Tensor& sub(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
            bool has_bools, const Scalar& alpha, Tensor& out) {
  OPSMITH_CHECK(context, dtype != ScalarType::Bool, InvalidArgument, out,
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                "`logical_xor()` operator instead.");
  if (has_bools && !in_executorch()) {
    reject_bool(context);
    return out;
  }
  // As ATen does, which tells in the sign of a zero that is multiplied by an integer.
  const Scalar factor = negative_of(alpha);
  const std::string_view name(Name);
  const bool takes_any =
      in_executorch() && (name == kRsubScalar || (name == kSubScalar && is_half_precision(dtype)));
  if (takes_any ? !is_kind_of_alpha(context, dtype, alpha) : !accepts_alpha(context, dtype, alpha, factor)) {
    return out;
  }
  return with_alpha<Name, Added>(context, Real{}, dtype, self, other, factor, out);
}

template <const char* Name>
Tensor& mul(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
            Tensor& out) {
  return binary<Name>(context, RealB{}, dtype, self, other, out, kProduct, kOther);
}

template <const char* Name>
Tensor& div(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
            Tensor& out) {
  return binary<Name>(context, Floating{}, float_dtype(dtype, out), self, other, out, kQuotient, kOther);
}

// The functions below meet no divisor of 0, and take care of -1: the least integer over it would trap.

// Of the dividend's sign, as C's %.
template <class C>
C remainder_trunc(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::fmod(a, b);
  } else {
    return std::is_signed_v<C> && b == static_cast<C>(-1) ? C(0) : static_cast<C>(a % b);
  }
}

// Of the divisor's sign, as Python's %.
template <class C>
C remainder_floor(C a, C b) {
  const C r = remainder_trunc(a, b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<C>(r + b) : r;
}

template <class C>
C quotient_trunc(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::trunc(a / b);
  } else {
    return std::is_signed_v<C> && b == static_cast<C>(-1)
               ? static_cast<C>(std::make_unsigned_t<C>(0) - static_cast<std::make_unsigned_t<C>>(a))
               : static_cast<C>(a / b);
  }
}

template <class C>
C quotient_floor(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    // As Python divides: from the exact remainder, because a / b may round up to the next integer.
    if (b == 0) {
      return a / b;
    }
    const C remainder = std::fmod(a, b);
    C quotient = (a - remainder) / b;
    if (remainder != 0 && (b < 0) != (remainder < 0)) {
      quotient -= C(1);
    }
    if (quotient == 0) {
      return std::copysign(C(0), a / b);
    }
    const C floored = std::floor(quotient);
    return quotient - floored > C(0.5) ? floored + C(1) : floored;
  } else {
    const C quotient = quotient_trunc(a, b);
    return remainder_trunc(a, b) != 0 && (a < 0) != (b < 0) ? static_cast<C>(quotient - 1) : quotient;
  }
}

constexpr auto kRemainderTrunc = [](auto a, auto b) { return remainder_trunc(a, b); };
constexpr auto kRemainderFloor = [](auto a, auto b) { return remainder_floor(a, b); };
constexpr auto kQuotientTrunc = [](auto a, auto b) { return quotient_trunc(a, b); };
constexpr auto kQuotientFloor = [](auto a, auto b) { return quotient_floor(a, b); };

template <class T>
constexpr auto kQuotientTruncAs =
    [](float a, float b) { return std::trunc(convert_value<float>(convert_value<T>(a / b))); };

template <class T>
bool has_zero_of(const Tensor& t) {
  const T* const begin = static_cast<const T*>(t.const_data_ptr());
  return std::find(begin, begin + t.numel(), T(0)) != begin + t.numel();
}

// Whether an element of `t`, which are integers, is 0.
bool has_zero(const Tensor& t) {
  switch (t.element_size()) {
    case 1:
      return has_zero_of<uint8_t>(t);
    case 2:
      return has_zero_of<uint16_t>(t);
    case 4:
      return has_zero_of<uint32_t>(t);
    default:
      return has_zero_of<uint64_t>(t);
  }
}

// f(a, b), but of integers over what only becomes 0 as it is converted, which is counted.
template <class C, class F>
struct Divided {
  F f;
  std::atomic<bool>* by_zero;
  C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (b == 0) {
        by_zero->store(true, std::memory_order_relaxed);
        return 0;
      }
    }
    return f(a, b);
  }
};

template <const char* Name, class F>
Tensor& divided(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
                Tensor& out, const F& f, int exact = 0) {
  // Before anything is written: `out` may be an operand, which a call that fails must not change.
  if (executorch::runtime::isIntegralType(dtype, /*includeBool=*/false) && self.numel() > 0 &&
      has_zero(other)) {
    reject(context, Error::InvalidArgument, "ZeroDivisionError");
    return out;
  }
  std::atomic<bool> by_zero{false};
  binary_of<Name>(
      context, Real{}, dtype, self, other, out,
      [&](auto type) { return Divided<typename decltype(type)::type, F>{f, &by_zero}; }, exact);
  if (by_zero.load()) {
    reject(context, Error::InvalidArgument, "ZeroDivisionError");
  }
  return out;
}

template <const char* Name>
Tensor& div_mode(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self, const Tensor& other,
                 std::optional<std::string_view> rounding_mode, Tensor& out) {
  if (!rounding_mode.has_value()) {
    return div<Name>(context, dtype, self, other, out);
  }
  if (*rounding_mode == "floor") {
    return divided<Name>(context, dtype, self, other, out, kQuotientFloor, kOther);
  }
  if (*rounding_mode == "trunc") {
    // Quotients of two Tensors are rounded to the dtype before they are cut off, those by a number are not.
    if (dtype == ScalarType::Half && other.numel() != 1) {
      return binary<Name>(context, Types<float, Half>{}, dtype, self, other, out, kQuotientTruncAs<Half>);
    }
    if (dtype == ScalarType::BFloat16 && other.numel() != 1) {
      return binary<Name>(context, Types<float, BFloat16>{}, dtype, self, other, out,
                          kQuotientTruncAs<BFloat16>);
    }
    return divided<Name>(context, dtype, self, other, out, kQuotientTrunc, kOther);
  }
  reject(context, Error::InvalidArgument,
         "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%.*s'",
         static_cast<int>(rounding_mode->size()), rounding_mode->data());
  return out;
}

// Numbers go into the four operations as they are calculated with (Float for Half), into the others rounded
// to the result's dtype: so does ATen.
ScalarTensor number(const Scalar& value, ScalarType dtype) {
  return {value, dtype};
}

// As ExecuTorch has it of integers over 0, which ATen refuses, and over numbers that their dtype cannot hold.
Tensor& fmod_of_doubles(KernelRuntimeContext& context, ScalarType dtype, const Tensor& self,
                        const Tensor& other, Tensor& out) {
  if (can_store(context, dtype, out) && resize_to_broadcast(context, out, {&self, &other}) &&
      one_dim_order(context, {&out, &self, &other})) {
    pointwise<double(double, double)>(
        context, out, [](double a, double b) { return std::fmod(a, b); }, self, other);
  }
  return out;
}

}  // namespace

Tensor& add_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  if (any_is_complex({&self, &other, &out})) {
    return complex_sum<kAdd>(context, self, other, alpha, out);
  }
  return add<kAdd>(context, common_dtype(self, other), self, other, alpha, out);
}

Tensor& add_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,
                       const Scalar& alpha, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  // ExecuTorch's goes from and to Half and BFloat16 as well.
  const bool is_narrowed =
      compute_dtype(dtype) == ScalarType::Float && compute_dtype(out.scalar_type()) == ScalarType::Float;
  return is_narrowed || out_is(context, dtype, out)
             ? add<kAddScalar>(context, dtype, self, number(other, compute_dtype(dtype)), alpha, out)
             : out;
}

Tensor& sub_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  if (any_is_complex({&self, &other, &out})) {
    return complex_sum<kSub>(context, self, other, negative_of(alpha), out);
  }
  return sub<kSub>(context, common_dtype(self, other), self, other,
                   self.scalar_type() == ScalarType::Bool || other.scalar_type() == ScalarType::Bool, alpha,
                   out);
}

Tensor& sub_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,
                       const Scalar& alpha, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  return out_is(context, dtype, out) && is_no_bool(context, self)
             ? sub<kSubScalar>(context, dtype, self, number(other, compute_dtype(dtype)), other.isBoolean(),
                               alpha, out)
             : out;
}

Tensor& mul_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  if (any_is_complex({&self, &other, &out})) {
    return complex_binary<kMul>(context, self, other, out, [](auto a, auto b) { return a * b; });
  }
  return mul<kMul>(context, common_dtype(self, other), self, other, out);
}

Tensor& mul_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  return out_is(context, dtype, out)
             ? mul<kMulScalar>(context, dtype, self, number(other, compute_dtype(dtype)), out)
             : out;
}

Tensor& div_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  if (any_is_complex({&self, &other, &out})) {
    return complex_binary<kDiv>(context, self, other, out, [](auto a, auto b) { return a / b; });
  }
  const ScalarType dtype = common_dtype(self, other);
  if (in_executorch() && dtype == ScalarType::Bool && out.scalar_type() == dtype) {
    // Which is defined where the divisor is true.
    return binary<kDiv>(context, Types<bool>{}, dtype, self, other, out, [](bool a, bool) { return a; });
  }
  return div<kDiv>(context, dtype, self, other, out);
}

Tensor& div_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other, Tensor& out) {
  const ScalarType dtype = float_dtype(common_dtype_for(out, self, other), out);
  return out_is(context, dtype, out)
             ? div<kDivScalar>(context, dtype, self, number(other, compute_dtype(dtype)), out)
             : out;
}

Tensor& div_mode_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other,
                     std::optional<std::string_view> rounding_mode, Tensor& out) {
  return div_mode<kDivMode>(context, common_dtype(self, other), self, other, rounding_mode, out);
}

Tensor& div_scalar_mode_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,
                            std::optional<std::string_view> rounding_mode, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  const ScalarType divided_as = rounding_mode.has_value() ? dtype : float_dtype(dtype, out);
  return div_mode<kDivScalarMode>(context, dtype, self, number(other, compute_dtype(divided_as)),
                                  rounding_mode, out);
}

Tensor& fmod_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  if (in_executorch() && is_integral(common_dtype(self, other)) && has_zero(other)) {
    return fmod_of_doubles(context, common_dtype(self, other), self, other, out);
  }
  return divided<kFmod>(context, common_dtype(self, other), self, other, out, kRemainderTrunc);
}

Tensor& fmod_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  if (in_executorch() && overflows(other, dtype)) {
    return fmod_of_doubles(context, dtype, self, number(other, ScalarType::Double), out);
  }
  return divided<kFmodScalar>(context, dtype, self, number(other, dtype), out, kRemainderTrunc);
}

Tensor& remainder_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return divided<kRemainder>(context, common_dtype(self, other), self, other, out, kRemainderFloor);
}

Tensor& remainder_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,
                             Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  return divided<kRemainderScalar>(context, dtype, self, number(other, dtype), out, kRemainderFloor);
}

Tensor& remainder_scalar_tensor_out(KernelRuntimeContext& context, const Scalar& self, const Tensor& other,
                                    Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, other, self);
  return divided<kRemainderScalarTensor>(context, dtype, number(self, dtype), other, out, kRemainderFloor);
}

Tensor& floor_divide_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other,
                         Tensor& out) {
  return divided<kFloorDivide>(context, common_dtype(self, other), self, other, out, kQuotientFloor, kOther);
}

// other - alpha self
Tensor& rsub_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,
                        const Scalar& alpha, Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, other);
  return out_is(context, dtype, out) && is_no_bool(context, self)
             ? sub<kRsubScalar>(context, dtype, number(other, compute_dtype(dtype)), self, other.isBoolean(),
                                alpha, out)
             : out;
}

Tensor& atan2_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return binary<kAtan2>(context, Floating{}, float_dtype(common_dtype(self, other), out), self, other, out,
                        [](auto a, auto b) { return std::atan2(a, b); });
}

}  // namespace opsmith::portable::native
