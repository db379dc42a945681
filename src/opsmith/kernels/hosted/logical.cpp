// Logical and bitwise operators.
#include <opsmith/pointwise.h>

#include <functional>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace opsmith::hosted {

#define OPSMITH_BITWISE(NAME, OPERATOR)                                                                     \
  void NAME(at::TensorIteratorBase& iter) {                                                                 \
    binary<Logical>(iter, []<class C>() { return [](C a, C b) { return static_cast<C>(a OPERATOR b); }; }); \
  }

OPSMITH_BITWISE(bitwise_and, &)
OPSMITH_BITWISE(bitwise_or, |)
OPSMITH_BITWISE(bitwise_xor, ^)

void bitwise_not(at::TensorIteratorBase& iter) {
  unary<Logical>(iter, []<class C>() {
    return [](C a) -> C {
      if constexpr (std::is_same_v<C, bool>) {
        return !a;
      } else {
        return static_cast<C>(~a);
      }
    };
  });
}

// `out` may have any dtype here. Bool and the operand's (in place) are written directly, others converted.
at::Tensor& logical_not_out(const at::Tensor& self, at::Tensor& out) {
  const bool direct = out.scalar_type() == at::kBool || out.scalar_type() == self.scalar_type();
  at::Tensor truth = direct ? out : at::empty({0}, self.options().dtype(at::kBool));
  auto iter =
      at::TensorIteratorConfig().check_all_same_dtype(false).add_output(truth).add_const_input(self).build();
  with_dtype(Real{}, self.scalar_type(), [&]<class T>() {
    if (truth.scalar_type() == at::kBool) {
      pointwise<bool(T)>(iter, [](auto a) { return a == 0; });
    } else {
      pointwise<T(T)>(iter, [](auto a) { return static_cast<decltype(a)>(a == 0); });
    }
  });
  if (!direct) {
    out.resize_(truth.sizes()).copy_(truth);
  }
  return out;
}

at::Tensor logical_not(const at::Tensor& self) {
  at::Tensor truth = at::empty({0}, self.options().dtype(at::kBool));
  return logical_not_out(self, truth);
}

}  // namespace opsmith::hosted
