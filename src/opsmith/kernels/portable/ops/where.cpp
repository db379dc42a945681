// Choices between two operands by a third.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {
namespace {

constexpr char kWhere[] = "where.self_out";
constexpr char kMaskedFillScalar[] = "masked_fill.Scalar_out";
constexpr char kMaskedFillTensor[] = "masked_fill.Tensor_out";

template <class C>
struct Chosen {
  C operator()(bool condition, C a, C b) const { return condition ? a : b; }
};

template <const char* Name>
Tensor& choose(KernelRuntimeContext& context, ScalarType dtype, const Tensor& condition, const Tensor& a,
               const Tensor& b, Tensor& out) {
  if (can_store(context, dtype, out) &&
      (out.scalar_type() == promoted_dtype(a, b) || out_is(context, dtype, out)) &&
      resize_to_broadcast(context, out, {&condition, &a, &b}) &&
      one_dim_order(context, {&out, &condition, &a, &b})) {
    with_compute_dtype<Name>(context, RealB{}, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<C(bool, C, C)>(context, out, Chosen<C>{}, condition, a, b);
    });
  }
  return out;
}

bool is_mask(KernelRuntimeContext& context, const Tensor& mask) {
  return mask.scalar_type() == ScalarType::Bool ||
         reject(context, Error::InvalidArgument,
                "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                name_of(mask.scalar_type()));
}

template <const char* Name>
Tensor& masked_fill(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask,
                    const Scalar& value, Tensor& out) {
  const ScalarType dtype = self.scalar_type();
  if (!is_mask(context, mask) || (!in_executorch() && !fits(context, value, dtype))) {
    return out;
  }
  return choose<Name>(context, dtype, mask, ScalarTensor(value, dtype), self, out);
}

}  // namespace

Tensor& where_out(KernelRuntimeContext& context, const Tensor& condition, const Tensor& self,
                  const Tensor& other, Tensor& out) {
  OPSMITH_CHECK(
      context, condition.scalar_type() == ScalarType::Bool || condition.scalar_type() == ScalarType::Byte,
      InvalidArgument, out, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
      name_of(condition.scalar_type()));
  return choose<kWhere>(context, common_dtype(self, other), condition, self, other, out);
}

Tensor& masked_fill_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask,
                               const Scalar& value, Tensor& out) {
  return masked_fill<kMaskedFillScalar>(context, self, mask, value, out);
}

Tensor& masked_fill_tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask,
                               const Tensor& value, Tensor& out) {
  OPSMITH_CHECK(
      context, value.dim() == 0, InvalidArgument, out,
      "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
      static_cast<int>(value.dim()));
  OPSMITH_CHECK(context, contains(RealB{}, value.scalar_type()), NotSupported, out,
                "masked_fill does not take a value of %s", name_of(value.scalar_type()));
  return masked_fill<kMaskedFillTensor>(context, self, mask, element_of(value), out);
}

}  // namespace opsmith::portable::native
