// Copies and fills.
#include "../movement.h"
#include "../scalar_tensor.h"

namespace opsmith::portable::native {
namespace {

// Whether src can be stretched to the shape of `self`; rejects the call where not.
bool stretches(KernelRuntimeContext& context, const Tensor& src, const Tensor& self) {
  OPSMITH_CHECK(context, src.dim() <= self.dim(), InvalidArgument, false,
                "copy: src has %d dimensions, more than self, which has %d", static_cast<int>(src.dim()),
                static_cast<int>(self.dim()));
  for (size_t d = 0; d < static_cast<size_t>(src.dim()); ++d) {
    const int64_t size = src.sizes()[d];
    const int64_t own = self.sizes()[d + static_cast<size_t>(self.dim() - src.dim())];
    OPSMITH_CHECK(context, size == own || size == 1, InvalidArgument, false,
                  "copy: src of size %" PRId64 " cannot be stretched to %" PRId64 " in dimension %zu", size,
                  own, d);
  }
  return true;
}

// Whether a number that is too large for `self` fills it with infinity: ATen checks halves that have
// dimensions.
bool goes_to_infinity(const Tensor& self) {
  return !in_executorch() && self.dim() == 0 &&
         (self.scalar_type() == ScalarType::Half || self.scalar_type() == ScalarType::BFloat16);
}

}  // namespace

Tensor& copy_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src, bool non_blocking,
                 Tensor& out) {
  OPSMITH_CHECK(context, !non_blocking || !in_executorch(), InvalidArgument, out,
                "copy: only blocking copies are supported");
  if (out_is(context, self.scalar_type(), out) && stretches(context, src, self) &&
      resize_like(context, out, self) && one_dim_order(context, {&out, &self, &src})) {
    copy_elements(context, src, out);
  }
  return out;
}

Tensor& fill_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& value, Tensor& out) {
  if (out_is(context, self.scalar_type(), out) &&
      (goes_to_infinity(self) || fits(context, value, out.scalar_type())) &&
      resize_like(context, out, self) && one_dim_order(context, {&out, &self})) {
    copy_elements(context, ScalarTensor(value, out.scalar_type()), out);
  }
  return out;
}

Tensor& fill_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& value, Tensor& out) {
  OPSMITH_CHECK(context, value.dim() == 0, InvalidArgument, out,
                "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
                static_cast<int>(value.dim()));
  if (out_is(context, self.scalar_type(), out) && resize_like(context, out, self) &&
      one_dim_order(context, {&out, &self})) {
    copy_elements(context, value, out);
  }
  return out;
}

}  // namespace opsmith::portable::native
