// The operators of optimisers: addcmul, addcdiv, lerp.
#include "../pointwise_bodies.h"

#include <cmath>

namespace opsmith::portable::native {
namespace {

constexpr char kAddcmul[] = "addcmul.out";
constexpr char kAddcdiv[] = "addcdiv.out";
constexpr char kLerpScalar[] = "lerp.Scalar_out";
constexpr char kLerpTensor[] = "lerp.Tensor_out";

template <class C>
struct AddedProduct {
  C value;
  C operator()(C a, C b, C c) const {
    if constexpr (std::is_integral_v<C>) {
      using W = std::common_type_t<unsigned, std::make_unsigned_t<C>>;
      return static_cast<C>(static_cast<W>(a) +
                            static_cast<W>(value) * static_cast<W>(b) * static_cast<W>(c));
    } else {
      return a + value * b * c;
    }
  }
};

template <class C>
struct AddedQuotient {
  C value;
  C operator()(C a, C b, C c) const { return a + value * b / c; }
};

// From the nearer end, so that weights 0 and 1 give the ends exactly.
template <class C>
struct Interpolated {
  C operator()(C start, C end, C weight) const {
    const C difference = end - start;
    return std::fabs(weight) < C(0.5) ? start + weight * difference : end - difference * (C(1) - weight);
  }
};

constexpr int kWeight = 3;  // not rounded to Half or BFloat16 where it is a number
constexpr auto kInterpolated = [](auto type) { return Interpolated<typename decltype(type)::type>{}; };

}  // namespace

Tensor& addcmul_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& tensor1,
                    const Tensor& tensor2, const Scalar& value, Tensor& out) {
  const ScalarType dtype = common_dtype(self, tensor1, tensor2);
  if (!fits(context, value, compute_dtype(dtype))) {
    return out;
  }
  return ternary_of<kAddcmul>(context, Real{}, dtype, self, tensor1, tensor2, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return AddedProduct<C>{value_of<C>(value)};
  });
}

Tensor& addcdiv_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& tensor1,
                    const Tensor& tensor2, const Scalar& value, Tensor& out) {
  const ScalarType dtype = common_dtype(self, tensor1, tensor2);
  OPSMITH_CHECK(context, is_floating(tensor1.scalar_type()) || is_floating(tensor2.scalar_type()),
                InvalidArgument, out,
                "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
                "perform a true division of tensor1 and tensor2.");
  if (!fits(context, value, compute_dtype(dtype))) {
    return out;
  }
  return ternary_of<kAddcdiv>(context, Floating{}, dtype, self, tensor1, tensor2, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return AddedQuotient<C>{value_of<C>(value)};
  });
}

Tensor& lerp_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& end,
                        const Scalar& weight, Tensor& out) {
  const ScalarType dtype = common_dtype(self, end);
  if (!fits(context, weight, compute_dtype(dtype))) {
    return out;
  }
  const ScalarTensor number(weight, compute_dtype(dtype));
  return ternary_of<kLerpScalar>(context, Floating{}, dtype, self, end, number, out, kInterpolated, kWeight);
}

Tensor& lerp_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& end,
                        const Tensor& weight, Tensor& out) {
  return ternary_of<kLerpTensor>(context, Floating{}, common_dtype(self, end, weight), self, end, weight, out,
                                 kInterpolated);
}

}  // namespace opsmith::portable::native
