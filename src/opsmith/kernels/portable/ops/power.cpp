// Powers.
#include "../movement.h"
#include "../pointwise_bodies.h"

#include <cmath>

namespace opsmith::portable::native {
namespace {

constexpr char kTensorTensor[] = "pow.Tensor_Tensor_out";
constexpr char kTensorScalar[] = "pow.Tensor_Scalar_out";
constexpr char kScalar[] = "pow.Scalar_out";

// Integers by squaring, wrapping as products do; a negative power of one is a fraction, cut off.
template <class C>
C power_of(C base, C exponent) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::pow(base, exponent);
  } else {
    if (std::is_signed_v<C> && exponent < 0) {
      const C sign = exponent % 2 == 0 ? C(1) : static_cast<C>(-1);
      return base == 1 ? C(1) : base == static_cast<C>(-1) ? sign : C(0);
    }
    using W = std::common_type_t<unsigned, std::make_unsigned_t<C>>;
    W result = 1;
    W square = static_cast<W>(base);
    for (C rest = exponent; rest != 0; rest = static_cast<C>(rest / 2)) {
      result *= rest % 2 != 0 ? square : W(1);
      square *= square;
    }
    return static_cast<C>(result);
  }
}

constexpr auto kPower = [](auto base, auto exponent) { return power_of(base, exponent); };

// The powers that ATen calculates without pow: exact, and vectorised.
constexpr auto kSame = [](auto a) { return a; };
constexpr auto kSquare = [](auto a) { return a * a; };
constexpr auto kCube = [](auto a) { return a * a * a; };
constexpr auto kRoot = [](auto a) { return std::sqrt(a); };
constexpr auto kInverseRoot = [](auto a) { return decltype(a)(1) / std::sqrt(a); };
constexpr auto kInverse = [](auto a) { return decltype(a)(1) / a; };
constexpr auto kInverseSquare = [](auto a) { return decltype(a)(1) / (a * a); };

}  // namespace

Tensor& pow_tensor_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& exponent,
                              Tensor& out) {
  return binary<kTensorTensor>(context, Real{}, common_dtype(self, exponent), self, exponent, out, kPower);
}

Tensor& pow_tensor_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& exponent,
                              Tensor& out) {
  const ScalarType dtype = common_dtype_for(out, self, exponent);
  const double power = value_of<double>(exponent);
  if (is_floating(dtype)) {
    const auto by = [&](const auto& f) -> Tensor& {
      return unary<kTensorScalar>(context, Floating{}, dtype, self, out, f);
    };
    if (power == 1.0) {
      return by(kSame);
    }
    if (power == 2.0) {
      return by(kSquare);
    }
    if (power == 3.0) {
      return by(kCube);
    }
    const bool has_roots = dtype != ScalarType::Half;  // which ATen gives to pow: it differs for -inf and -0
    if (power == 0.5 && has_roots) {
      return by(kRoot);
    }
    if (power == -0.5 && has_roots) {
      return by(kInverseRoot);
    }
    if (power == -1.0) {
      return by(kInverse);
    }
    if (power == -2.0) {
      return by(kInverseSquare);
    }
  } else if (in_executorch() && dtype != ScalarType::Bool && (power < 0 || overflows(exponent, dtype))) {
    // Which ATen refuses: the powers of floating point, as far as integers hold them.
    return unary_of<kTensorScalar>(context, Integral{}, dtype, self, out, [&](auto type) {
      using C = typename decltype(type)::type;
      return [power](C base) { return convert_value<C>(std::pow(static_cast<double>(base), power)); };
    });
  } else if (power < 0) {
    reject(context, Error::InvalidArgument, "Integers to negative integer powers are not allowed.");
    return out;
  }
  if (dtype == ScalarType::Bool) {
    // The only dtype of two bools: the base, or True where the exponent is False.
    return unary_of<kTensorScalar>(context, Types<bool>{}, dtype, self, out, [&](auto) {
      return [exponent = power != 0](bool base) { return base || !exponent; };
    });
  }
  // ATen computes with a double where the base is one or a float, and else with an exponent of the base's
  // dtype.
  if (!in_executorch() && dtype != ScalarType::Float && !fits(context, exponent, dtype)) {
    return out;
  }
  return binary<kTensorScalar>(context, Real{}, dtype, self, ScalarTensor(exponent, compute_dtype(dtype)),
                               out, kPower);
}

Tensor& pow_scalar_out(KernelRuntimeContext& context, const Scalar& self, const Tensor& exponent,
                       Tensor& out) {
  if (!self.isBoolean() && value_of<double>(self) == 1.0) {  // ATen fills `out` with ones, whatever its dtype
    Bytes16 one;
    if (resize(context, out, sizes_of(exponent)) && element_of(context, self, out.scalar_type(), one)) {
      fill_strided(sizes_of(out), out.element_size(), &one, destination_of(out));
    }
    return out;
  }
  const ScalarType dtype = common_dtype_for(out, exponent, self);
  return binary<kScalar>(context, Real{}, dtype, ScalarTensor(self, dtype), exponent, out, kPower);
}

}  // namespace opsmith::portable::native
