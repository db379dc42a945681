// Copies and fills.
#include "../movement.h"
#include "../scalar_tensor.h"

namespace opsmith::portable::native {

Tensor& copy_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& src, bool /*non_blocking*/,
                 Tensor& out) {
  if (resize_like(context, out, self)) {
    copy_elements(context, src, out);
  }
  return out;
}

Tensor& fill_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& value, Tensor& out) {
  if (fits(context, value, out.scalar_type()) && resize_like(context, out, self)) {
    copy_elements(context, ScalarTensor(value, out.scalar_type()), out);
  }
  return out;
}

Tensor& fill_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& value, Tensor& out) {
  OPSMITH_CHECK(context, value.dim() == 0, InvalidArgument, out,
                "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
                static_cast<int>(value.dim()));
  if (resize_like(context, out, self)) {
    copy_elements(context, value, out);
  }
  return out;
}

}  // namespace opsmith::portable::native
