// The three variants of add as a careful engineer writes them by hand: each checks its operands' devices,
// dtypes, shapes and overlap, and computes. They are registered as they are, without a wrapper.
#include "../lean_add.h"

#include <opsmith/empty.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

namespace handwritten {

namespace {

void check(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "add takes operands on one device");
  lean::check_operands(self, other);
}

}  // namespace

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  check(self, other);
  at::Tensor out = opsmith::empty_fast(self.sizes(), self.scalar_type(), self.device());
  lean::add(self, other, alpha, out);
  return out;
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  check(self, other);
  TORCH_CHECK(out.device() == self.device() && out.scalar_type() == at::kFloat,
              "add.out takes a float32 out");
  at::native::resize_output(out, self.sizes());
  at::assert_no_partial_overlap(out, self);
  at::assert_no_partial_overlap(out, other);
  lean::add(self, other, alpha, out);
  return out;
}

at::Tensor& add_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  check(self, other);
  at::assert_no_partial_overlap(self, other);
  lean::add(self, other, alpha, self);
  return self;
}

}  // namespace handwritten
