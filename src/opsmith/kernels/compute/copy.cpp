// Copies that cast or change the layout, and what fills memory.
#include "pointwise.h"

#include <opsmith/device/copy.h>

#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "../meta/result_sizes.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

bool is_copied_here(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool known = at::isIntegralType(dtype, /*includeBool=*/true) && dtype <= at::kBool;
  return tensor.is_privateuseone() && !tensor.is_neg() && !tensor.is_conj() &&
         (known || dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
          dtype == at::kBFloat16);
}

}  // namespace

at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (self.device() != dst.device() || self.sizes() != dst.sizes() || !is_copied_here(self) ||
      !is_copied_here(dst) || is_same_run(self, dst)) {
    return opsmith::_copy_from(self, dst, non_blocking);
  }
  const c10::OptionalDeviceGuard guard(self.device());
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(dst)
                  .add_const_input(self)
                  .build();
  pointwise(iter, "a", self.scalar_type());
  return dst;
}

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  at::detail::scalar_tensor_static(value, self.scalar_type(),
                                   at::kCPU);  // refuses what the dtype cannot hold
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)  // elements that share memory are given the same value
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .build();
  pointwise(iter, "x", self.scalar_type(), {checked(value, self.scalar_type())});
  return self;
}

// What float16 and bfloat16 do not hold becomes infinite, as on the CPU; fill_ refuses it.
at::Tensor& scalar_tensor(const at::Scalar& number, at::Tensor& out) {
  const at::ScalarType dtype = out.scalar_type();
  at::native::resize_output(out, {});
  return fill_(out, at::isReducedFloatingType(dtype) ? stored(number, dtype) : number);
}

at::Tensor& arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  const int64_t length = meta_functions::arange_length(start, end, step, out.scalar_type());
  if (out.numel() != length) {
    if (out.numel() > 0) {
      TORCH_WARN(
          "The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
          " which does not match the computed number of elements ", length,
          ". Note that this may occur as a result of rounding error. The out tensor will be resized to a "
          "tensor of shape (",
          length, ",).");
    }
    out.resize_({length});
  }
  at::Tensor line = out.is_contiguous() ? out.view({length}) : at::empty({length}, out.options());
  auto iter = at::TensorIterator::borrowing_nullary_op(line);
  const at::ScalarType dtype = out.scalar_type();
  const at::ScalarType computed = at::isIntegralType(dtype, false) ? at::kLong
                                  : limits().has_double != 0       ? at::kDouble
                                                                   : at::kFloat;
  pointwise(iter, "x + y * i", computed, {start, step});
  if (!line.is_alias_of(out)) {
    out.copy_(line.view_as(out));
  }
  return out;
}

}  // namespace opsmith::compute
