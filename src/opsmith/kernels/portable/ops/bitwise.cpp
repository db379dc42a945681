// Operators on the bits of integers, and on bools as truth values.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {

OPSMITH_SYMBOL(binary, IntegralB, bitwise_and, &)
OPSMITH_SYMBOL(binary, IntegralB, bitwise_or, |)
OPSMITH_SYMBOL(binary, IntegralB, bitwise_xor, ^)

namespace {

// Of bools, which ExecuTorch shifts and ATen does not, as integers and then truth values.
//
// By less than an integer has bits: by more, C++ does not say what it is, and ATen gives what is left.
template <class C>
bool is_within(C bits) {
  return bits >= C(0) && static_cast<uint64_t>(bits) < sizeof(C) * 8;
}

constexpr auto kLeft = [](auto a, auto bits) {
  using C = decltype(a);
  if constexpr (std::is_same_v<C, bool>) {
    return a;
  } else {
    using U = std::make_unsigned_t<C>;
    return is_within(bits) ? static_cast<C>(static_cast<uint64_t>(static_cast<U>(a)) << bits) : C(0);
  }
};
constexpr auto kRight = [](auto a, auto bits) {
  using C = decltype(a);
  if constexpr (std::is_same_v<C, bool>) {
    return a && !bits;
  } else {
    const C most = static_cast<C>(sizeof(C) * 8 - 1);  // which leaves the sign
    return is_within(bits)       ? static_cast<C>(a >> bits)
           : std::is_signed_v<C> ? static_cast<C>(a >> most)
                                 : C(0);
  }
};

}  // namespace

#define OPSMITH_SHIFT(name, function)                                                                       \
  OPSMITH_TWO_OPERANDS(binary, IntegralB, name##_tensor_out, #name ".Tensor_out", name##_tensor_scalar_out, \
                       #name ".Tensor_Scalar_out", function)
OPSMITH_SHIFT(bitwise_left_shift, kLeft)
OPSMITH_SHIFT(bitwise_right_shift, kRight)
#undef OPSMITH_SHIFT

Tensor& bitwise_not_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  static constexpr char kName[] = "bitwise_not.out";
  if (!out_is(context, self.scalar_type(), out)) {
    return out;
  }
  return unary<kName>(context, IntegralB{}, self.scalar_type(), self, out, [](auto a) {
    if constexpr (std::is_same_v<decltype(a), bool>) {
      return !a;
    } else {
      return ~a;
    }
  });
}

}  // namespace opsmith::portable::native
