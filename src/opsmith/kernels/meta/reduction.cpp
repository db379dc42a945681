// Reductions of all elements, and the variances of some dimensions.
#include "meta_tensors.h"
#include "warnings.h"

#include <ATen/WrapDimUtilsMulti.h>

#include <optional>
#include <tuple>

namespace opsmith::meta_functions {
namespace {

at::Tensor reduced(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, at::ScalarType dtype) {
  const auto mask = at::dim_list_to_bitset(
      dims.has_value() && !dims->empty() ? std::optional<at::IntArrayRef>(*dims) : std::nullopt, self.dim());
  at::DimVector sizes;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (!mask[dim]) {
      sizes.push_back(self.size(dim));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return contiguous(sizes, dtype);
}

// The result of a variance, or of what is made of it: ATen warns of divisors that are not positive.
at::Tensor varied(const char* name, const at::Tensor& self, at::OptionalIntArrayRef dims,
                  const std::optional<at::Scalar>& correction, bool keepdim) {
  at::Tensor result = reduced(self, dims, keepdim, c10::toRealValueType(self.scalar_type()));
  warn_of_correction(name, self, result, correction.value_or(1).toDouble());
  return result;
}

at::Tensor extremum(const char* name, const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
              "with the 'dim' argument.");
  return contiguous({}, self.scalar_type());
}

}  // namespace

// sum and prod: integers add up, and multiply, as Long
at::Tensor accumulated(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return contiguous({}, dtype.value_or(integral ? at::kLong : self.scalar_type()));
}

at::Tensor mean(const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  const at::ScalarType given = dtype.value_or(self.scalar_type());
  TORCH_CHECK(at::isFloatingType(given) || at::isComplexType(given),
              "mean(): could not infer output dtype. Input dtype must be either a floating point or complex "
              "dtype. Got: ",
              given);
  return contiguous({}, given);
}

at::Tensor max(const at::Tensor& self) {
  return extremum("max", self);
}

at::Tensor min(const at::Tensor& self) {
  return extremum("min", self);
}

at::Tensor variance(const at::Tensor& self, at::OptionalIntArrayRef dim,
                    const std::optional<at::Scalar>& correction, bool keepdim) {
  return varied("var", self, dim, correction, keepdim);
}

at::Tensor deviation(const at::Tensor& self, at::OptionalIntArrayRef dim,
                     const std::optional<at::Scalar>& correction, bool keepdim) {
  return varied("std", self, dim, correction, keepdim);
}

std::tuple<at::Tensor, at::Tensor> variance_and_mean(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                                     const std::optional<at::Scalar>& correction,
                                                     bool keepdim) {
  return {varied("var_mean", self, dim, correction, keepdim),
          reduced(self, dim, keepdim, self.scalar_type())};
}

}  // namespace opsmith::meta_functions
