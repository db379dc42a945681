// Comparisons of two operands in their common dtype. Numbers are rounded to it first, as in ATen.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {

#define OPSMITH_COMPARISON(name, symbol)                                                                    \
  namespace {                                                                                               \
  constexpr auto name##_values = [](auto a, auto b) { return a symbol b; };                                 \
  }                                                                                                         \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) { \
    static constexpr char kName[] = #name ".Tensor_out";                                                    \
    return predicate<kName>(context, RealB{}, common_dtype(self, other), self, other, out, name##_values);  \
  }                                                                                                         \
  Tensor& name##_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,         \
                            Tensor& out) {                                                                  \
    static constexpr char kName[] = #name ".Scalar_out";                                                    \
    const ScalarType dtype = common_dtype(self, other);                                                     \
    return predicate<kName>(context, RealB{}, dtype, self, ScalarTensor(other, dtype), out, name##_values); \
  }

OPSMITH_COMPARISON(eq, ==)
OPSMITH_COMPARISON(ne, !=)
OPSMITH_COMPARISON(lt, <)
OPSMITH_COMPARISON(le, <=)
OPSMITH_COMPARISON(gt, >)
OPSMITH_COMPARISON(ge, >=)
#undef OPSMITH_COMPARISON

}  // namespace opsmith::portable::native
