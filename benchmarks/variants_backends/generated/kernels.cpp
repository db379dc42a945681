// One variant of each operator, written by hand; opsmith writes the other two.
#include "../lean.h"

#include <ATen/native/Resize.h>

namespace generated {

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  lean::check_operands(self, other);
  at::native::resize_output(out, self.sizes());
  lean::add(self, other, alpha.to<float>(), out);
  return out;
}

at::Tensor& sub_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  lean::check_operands(self, other);
  at::native::resize_output(out, self.sizes());
  lean::add(self, other, -alpha.to<float>(), out);
  return out;
}

void mul(at::TensorIteratorBase& iter) {
  lean::mul(iter);
}

at::Tensor& nothing_(at::Tensor& self, const at::Tensor&) {
  return self;
}

}  // namespace generated
