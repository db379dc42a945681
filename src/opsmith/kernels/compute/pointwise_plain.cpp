// Operators on elements that are not structured in PyTorch: each makes its iterator itself.
#include "../meta/warnings.h"
#include "numbers.h"
#include "pointwise.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

namespace opsmith::compute {
namespace {

at::Tensor& unary(const at::Tensor& self, at::Tensor& out, const char* expression,
                  std::initializer_list<at::Scalar> numbers = {}) {
  auto iter = at::TensorIterator::unary_op(out, self);
  pointwise(iter, expression, self.scalar_type(), numbers);
  return out;
}

at::Tensor& logical(const at::Tensor& self, const at::Tensor& other, at::Tensor& out,
                    const char* expression) {
  auto iter = at::TensorIterator::comparison_op(out, self, other);
  pointwise(iter, expression);
  return out;
}

}  // namespace

at::Tensor& abs(const at::Tensor& self, at::Tensor& out) {
  return unary(self, out, at::isFloatingType(self.scalar_type()) ? "fabs(a)" : "a < 0 ? -a : a");
}

at::Tensor relu(const at::Tensor& self) {
  at::Tensor out = at::empty_like(self);
  return unary(self, out, "a <= 0 ? (C)0 : a");
}

at::Tensor& logical_not(const at::Tensor& self, at::Tensor& out) {
  auto iter =
      at::TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
  pointwise(iter, "a == 0", self.scalar_type());
  return out;
}

at::Tensor& logical_and(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return logical(self, other, out, "a != 0 && b != 0");
}

at::Tensor& logical_or(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return logical(self, other, out, "a != 0 || b != 0");
}

at::Tensor& logical_xor(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return logical(self, other, out, "(a != 0) != (b != 0)");
}

at::Tensor& where_self(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                       at::Tensor& out) {
  const at::ScalarType dtype = at::result_type(self, other);
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  TORCH_CHECK(out.scalar_type() == dtype, "Expected out type to be ", dtype, " but got ", out.scalar_type());
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .allow_cpu_scalars(true)
                  .add_output(out)
                  .add_const_input(condition)
                  .add_const_input(self)
                  .add_const_input(other)
                  .build();
  meta_functions::warn_of_byte_condition(condition);
  pointwise(iter, "a != 0 ? b : c", dtype);
  return out;
}

at::Tensor& masked_fill_(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill only supports boolean masks, but got mask with dtype ", mask.dtype());
  TORCH_CHECK(self.device() == mask.device(),
              "expected self and mask to be on the same device, but got mask on ", mask.device(),
              " and self on ", self.device());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, mask);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .set_check_mem_overlap(false)
                  .add_output(self)
                  .add_const_input(self)
                  .add_const_input(mask)
                  .build();
  pointwise(iter, "b != 0 ? x : a", self.scalar_type(), {checked(value, self.scalar_type())});
  return self;
}

at::Tensor& hardtanh(const at::Tensor& self, const at::Scalar& min_val, const at::Scalar& max_val,
                     at::Tensor& out) {
  const at::ScalarType dtype = self.scalar_type();
  return unary(self, out, "clamped(a, x, y)", {checked(min_val, dtype), checked(max_val, dtype)});
}

at::Tensor& hardtanh_backward(const at::Tensor& grad_output, const at::Tensor& self,
                              const at::Scalar& min_val, const at::Scalar& max_val, at::Tensor& grad_input) {
  auto iter = at::TensorIterator::borrowing_binary_op(grad_input, grad_output, self);
  pointwise(iter, "b <= x || b >= y ? (C)0 : a", {min_val, max_val});
  return grad_input;
}

at::Tensor& hardswish(const at::Tensor& self, at::Tensor& out) {
  return unary(self, out, "a < -3 ? (C)0 : a > 3 ? a : a * (a + 3) / 6");
}

at::Tensor isnan(const at::Tensor& self) {
  at::Tensor out = at::empty_like(self, self.options().dtype(at::kBool));
  auto iter =
      at::TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
  pointwise(iter, "a != a", self.scalar_type());
  return out;
}

}  // namespace opsmith::compute
