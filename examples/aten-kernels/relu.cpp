// relu: a functional kernel, from which relu_ and relu.out are derived.
#include <opsmith/pointwise.h>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace example {

at::Tensor relu(const at::Tensor& self) {
  at::Tensor result;
  auto iter = at::TensorIterator::unary_op(result, self);
  opsmith::unary<opsmith::Numeric>(iter, []<class C>() {
    return [](C a) { return a < C(0) ? C(0) : a; };  // NaN and -0 are not < 0 and stay
  });
  return iter.output();
}

}  // namespace example
