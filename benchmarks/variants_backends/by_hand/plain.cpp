// The three variants of add as a careful engineer writes them by hand: each checks its operands' devices,
// dtypes, shapes and overlap, and computes. They are registered as they are, without a wrapper.
#include "../lean.h"

#include <opsmith/device/empty.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_copy_from.h>

namespace by_hand {

namespace {

void check(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "the operands must be on one device");
  lean::check_operands(self, other);
}

at::Tensor new_like(const at::Tensor& self) {
  return opsmith::empty_fast(self.sizes(), self.scalar_type(), self.device());
}

}  // namespace

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  check(self, other);
  at::Tensor out = new_like(self);
  lean::add(self, other, alpha.to<float>(), out);
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
  lean::add(self, other, alpha.to<float>(), out);
  return out;
}

at::Tensor& add_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  check(self, other);
  at::assert_no_partial_overlap(self, other);
  lean::add(self, other, alpha.to<float>(), self);
  return self;
}

at::Tensor sub(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  check(self, other);
  at::Tensor out = new_like(self);
  lean::add(self, other, -alpha.to<float>(), out);
  return out;
}

// A temporary and a copy: torchgen.gen_backend_stubs knows no other way.
at::Tensor& sub_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  const at::Tensor result = by_hand::sub(self, other, alpha);
  at::_copy_from(result, self);
  return self;
}

at::Tensor& nothing_(at::Tensor& self, const at::Tensor&) {
  return self;
}

}  // namespace by_hand
