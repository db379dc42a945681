// Operators on the bits of integers, and on bools as truth values.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {

#define OPSMITH_BITWISE(name, symbol)                                                                        \
  namespace {                                                                                                \
  constexpr auto name##_values = [](auto a, auto b) { return a symbol b; };                                  \
  }                                                                                                          \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {  \
    static constexpr char kName[] = #name ".Tensor_out";                                                     \
    return binary<kName>(context, IntegralB{}, common_dtype(self, other), self, other, out, name##_values);  \
  }                                                                                                          \
  Tensor& name##_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other,          \
                            Tensor& out) {                                                                   \
    static constexpr char kName[] = #name ".Scalar_out";                                                     \
    const ScalarType dtype = common_dtype(self, other);                                                      \
    return binary<kName>(context, IntegralB{}, dtype, self, ScalarTensor(other, dtype), out, name##_values); \
  }

OPSMITH_BITWISE(bitwise_and, &)
OPSMITH_BITWISE(bitwise_or, |)
OPSMITH_BITWISE(bitwise_xor, ^)
#undef OPSMITH_BITWISE

Tensor& bitwise_not_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "bitwise_not.out";
  return unary<kName>(context, IntegralB{}, self.scalar_type(), self, out, [](auto a) {
    if constexpr (std::is_same_v<decltype(a), bool>) {
      return !a;
    } else {
      return ~a;
    }
  });
}

}  // namespace opsmith::portable::native
