// Copies and fills.
#include "pointwise.h"

namespace opsmith::portable::native {

Tensor& copy_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src, bool /*non_blocking*/,
                 Tensor& out) {
  if (resize_like(context, out, self)) {
    copy_elements(context, out, src);
  }
  return out;
}

Tensor& fill_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& value, Tensor& out) {
  if (fits(context, value, out.scalar_type()) && resize_like(context, out, self)) {
    copy_elements(context, out, ScalarTensor(value, out.scalar_type()));
  }
  return out;
}

Tensor& fill_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& value, Tensor& out) {
  if (value.dim() != 0) {
    refuse(context, Error::InvalidArgument,
           "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
           static_cast<int>(value.dim()));
    return out;
  }
  if (resize_like(context, out, self)) {
    copy_elements(context, out, value);
  }
  return out;
}

}  // namespace opsmith::portable::native
