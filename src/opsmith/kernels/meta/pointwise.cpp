// Operators in which each element of the result depends on the operands' elements at its place.
#include "meta_tensors.h"
#include "warnings.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <c10/core/DefaultDtype.h>

namespace opsmith::meta_functions {
namespace {

// The operands' broadcast sizes, with the strides that TensorIterator gives a result.
template <class... Operands>
at::Tensor pointwise(at::ScalarType dtype, const Operands&... operands) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .declare_static_dtype_and_device(dtype, at::kMeta)
      .add_owned_output(at::Tensor());
  (config.add_owned_const_input(operands), ...);
  return config.build().output(0);
}

// The result of one operand, as TensorIterator strides it: dimensions of one element do not keep their
// strides.
at::Tensor unary(const at::Tensor& self, at::ScalarType dtype) {
  return self.is_contiguous() ? contiguous(self.sizes(), dtype) : pointwise(dtype, self);
}

// The result of a Tensor and a number, which PyTorch makes a Tensor of no dimensions: now the strides of
// dimensions of one element, and of empty Tensors, count.
at::Tensor with_number(const at::Tensor& self, at::ScalarType dtype) {
  const bool plain = self.numel() != 0 && self.is_contiguous() &&
                     std::none_of(self.sizes().begin(), self.sizes().end(), [](int64_t n) { return n == 1; });
  return plain ? contiguous(self.sizes(), dtype) : pointwise(dtype, self, contiguous({}, dtype));
}

// The dtype that the Tensor's elements and the number promote to.
at::ScalarType common_dtype(const at::Tensor& self, const at::Scalar& other) {
  const at::native::ResultTypeState state = at::native::update_result_type_state(self, {});
  return at::native::result_type(at::native::update_result_type_state(other, state));
}

}  // namespace

at::Tensor relu(const at::Tensor& self) {
  return unary(self, self.scalar_type());
}

at::Tensor hardtanh(const at::Tensor& self, const at::Scalar& /*min_val*/, const at::Scalar& /*max_val*/) {
  return like(self);
}

// PyTorch clamps into an `out`, by another kernel.
at::Tensor hardtanh_out(const at::Tensor& self, const at::Scalar& /*min_val*/,
                        const at::Scalar& /*max_val*/) {
  return unary(self, self.scalar_type());
}

at::Tensor abs(const at::Tensor& self) {
  return unary(self, c10::toRealValueType(self.scalar_type()));
}

at::Tensor fill_scalar(const at::Tensor& self, const at::Scalar& /*value*/) {
  return like(self);
}

at::Tensor fill_tensor(const at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  return like(self);
}

// A Tensor and a number: mul, fmod, remainder, bitwise_and, bitwise_or, bitwise_xor and the shifts
at::Tensor with_scalar(const at::Tensor& self, const at::Scalar& other) {
  return with_number(self, common_dtype(self, other));
}

// add and sub
at::Tensor sum_with_scalar(const at::Tensor& self, const at::Scalar& other, const at::Scalar& /*alpha*/) {
  return with_scalar(self, other);
}

// A number and a Tensor: remainder
at::Tensor number_with(const at::Scalar& self, const at::Tensor& other) {
  return pointwise(common_dtype(other, self), contiguous({}, other.scalar_type()), other);
}

// The dtype of the quotient of a dividend of this dtype where nothing rounds.
at::ScalarType quotient_dtype(at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true) ? at::get_default_dtype_as_scalartype() : dtype;
}

at::Tensor logit(const at::Tensor& self, std::optional<double> /*eps*/) {
  return unary(self, quotient_dtype(self.scalar_type()));
}

at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) {
  return pointwise(at::native::result_type(std::array{self, other}), self, other);
}

at::Tensor div_by_scalar(const at::Tensor& self, const at::Scalar& other) {
  return with_number(self, quotient_dtype(common_dtype(self, other)));
}

at::Tensor div_by_scalar_rounded(const at::Tensor& self, const at::Scalar& other,
                                 std::optional<std::string_view> rounding) {
  TORCH_CHECK(!rounding.has_value() || *rounding == "trunc" || *rounding == "floor",
              "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", *rounding,
              "'");
  const at::ScalarType dtype = common_dtype(self, other);
  return with_number(self, rounding.has_value() ? dtype : quotient_dtype(dtype));
}

// PyTorch asks whether the magnitude equals infinity; whole numbers it does not look at.
at::Tensor isinf(const at::Tensor& self) {
  const bool whole = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return whole ? like(self, at::kBool) : with_number(abs(self), at::kBool);
}

// isnan and logical_not
at::Tensor unary_predicate(const at::Tensor& self) {
  return unary(self, at::kBool);
}

// logical_and, logical_or and logical_xor
at::Tensor binary_predicate(const at::Tensor& self, const at::Tensor& other) {
  return pointwise(at::kBool, self, other);
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  warn_of_byte_condition(condition);
  return pointwise(at::native::result_type(std::array{self, other}), condition, self, other);
}

at::Tensor masked_fill_scalar(const at::Tensor& self, const at::Tensor& mask, const at::Scalar& /*value*/) {
  return contiguous(at::infer_size(mask.sizes(), self.sizes()), self.scalar_type());
}

at::Tensor masked_fill_tensor(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension");
  return contiguous(at::infer_size(mask.sizes(), self.sizes()), self.scalar_type());
}

}  // namespace opsmith::meta_functions
