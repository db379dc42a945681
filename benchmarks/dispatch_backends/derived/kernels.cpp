// One variant of add, written by hand: the out kernel. opsmith derives the other two.
#include "../lean_add.h"

#include <ATen/native/Resize.h>

namespace derived {

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  lean::check_operands(self, other);
  at::native::resize_output(out, self.sizes());
  lean::add(self, other, alpha, out);
  return out;
}

}  // namespace derived
