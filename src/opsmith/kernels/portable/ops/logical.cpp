// Operators on truth values: whether elements of any dtype differ from 0.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {
namespace {

template <class F>
Tensor& logical(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out,
                const F& f) {
  if (resize_to_broadcast(context, out, {&self, &other}) && one_dim_order(context, {&out, &self, &other})) {
    pointwise<bool(bool, bool)>(context, out, f, self, other);
  }
  return out;
}

}  // namespace

Tensor& logical_and_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return logical(context, self, other, out, [](bool a, bool b) -> bool { return a & b; });
}

Tensor& logical_or_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return logical(context, self, other, out, [](bool a, bool b) -> bool { return a | b; });
}

Tensor& logical_xor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  return logical(context, self, other, out, [](bool a, bool b) -> bool { return a ^ b; });
}

Tensor& logical_not_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  if (resize_like(context, out, self) && one_dim_order(context, {&out, &self})) {
    pointwise<bool(bool)>(context, out, [](bool a) { return !a; }, self);
  }
  return out;
}

}  // namespace opsmith::portable::native
