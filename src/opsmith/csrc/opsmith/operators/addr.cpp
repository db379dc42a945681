// See addr.h.
#include <opsmith/operators/addr.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/ops/addr_native.h>
#include <c10/core/ScalarType.h>

namespace opsmith {
namespace {

// The scalar in the dtype, as the operators take it that the product is made of: a number would make integers
// of Bool. Raises where the dtype does not hold it.
at::Scalar of_dtype(const at::Scalar& scalar, const char* name, at::ScalarType dtype) {
  TORCH_CHECK(!scalar.isBoolean() || dtype == at::kBool, "Boolean ", name,
              " only supported for Boolean results.");
  TORCH_CHECK(!at::isIntegralType(dtype, /*includeBool=*/true) || scalar.isIntegral(/*includeBool=*/true),
              "For integral input tensors, argument ", name, " must not be a floating point number.");
  return AT_DISPATCH_V2(dtype, "addr_cpu", AT_WRAP([&] { return at::Scalar(scalar.to<scalar_t>()); }),
                        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kBool, at::kHalf, at::kBFloat16);
}

}  // namespace

at::Tensor addr(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2,
                const at::Scalar& beta, const at::Scalar& alpha) {
  const at::ScalarType dtype =
      c10::promoteTypes(self.scalar_type(), c10::promoteTypes(vec1.scalar_type(), vec2.scalar_type()));
  return at::native::math_addr(self.to(dtype), vec1.to(dtype), vec2.to(dtype), of_dtype(beta, "beta", dtype),
                               of_dtype(alpha, "alpha", dtype));
}

}  // namespace opsmith
