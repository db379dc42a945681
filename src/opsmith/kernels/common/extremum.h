// The largest and smallest elements: the operators, and which calls have none.
#pragma once

#include <optional>
#include <tuple>

#include "resize.h"

namespace opsmith {

// Where nothing is reduced into something, there is nothing to be the largest of.
inline bool has_extremum(KernelRuntimeContext& context, const char* name, const Tensor& self, DimSet dims,
                         const Tensor& out) {
  if (reduced_length(self, dims) > 0 || out.numel() == 0) {
    return true;
  }
  for (int d = 0; d < static_cast<int>(self.dim()); ++d) {
    OPSMITH_CHECK(context, !contains(dims, d) || self.sizes()[static_cast<size_t>(d)] != 0, InvalidArgument,
                  false, "%s(): Expected reduction dim %d to have non-zero size.", name, d);
  }
  return true;
}

}  // namespace opsmith

// The operators of the largest elements, `name` being max, or of the smallest, by four templates of a
// library.
#define OPSMITH_EXTREMUM_OPERATORS(name, Name, is_largest)                                               \
  constexpr char kA##name[] = "a" #name ".out";                                                          \
  constexpr char k##Name[] = #name ".unary_out";                                                         \
  constexpr char k##Name##Dim[] = #name ".dim_" #name;                                                   \
  constexpr char kArg##name[] = "arg" #name ".out";                                                      \
  Tensor& a##name##_out(KernelRuntimeContext& context, const Tensor& self, IntList dim, bool keepdim,    \
                        Tensor& out) {                                                                   \
    return extremum<kA##name, is_largest>(context, "a" #name, self, dim, keepdim, out);                  \
  }                                                                                                      \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {                   \
    return extremum_of_all<k##Name, is_largest>(context, #name, self, out);                              \
  }                                                                                                      \
  std::tuple<Tensor&, Tensor&> name##_dim_out(KernelRuntimeContext& context, const Tensor& self,         \
                                              int64_t dim, bool keepdim, Tensor& value, Tensor& place) { \
    return value_and_place<k##Name##Dim, is_largest>(context, #name, self, dim, keepdim, value, place);  \
  }                                                                                                      \
  Tensor& arg##name##_out(KernelRuntimeContext& context, const Tensor& self, std::optional<int64_t> dim, \
                          bool keepdim, Tensor& out) {                                                   \
    return place<kArg##name, is_largest>(context, "arg" #name, self, dim, keepdim, out);                 \
  }
