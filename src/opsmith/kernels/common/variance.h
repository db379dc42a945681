// The operators of variances and standard deviations.
#pragma once

#include <optional>
#include <tuple>

#include "dtypes.h"
#include "resize.h"

namespace opsmith {

inline double correction_or_one(const std::optional<Scalar>& correction) {
  return correction.has_value() ? value_of<double>(*correction) : 1.0;
}

}  // namespace opsmith

// The variants of one operator, by a library's template `variance`.
#define OPSMITH_VARIANCE(name, is_root)                                                                      \
  constexpr char k##name[] = #name ".out";                                                                   \
  constexpr char k##name##Correction[] = #name ".correction_out";                                            \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self,                                      \
                     executorch::aten::OptionalArrayRef<int64_t> dim, bool unbiased, bool keepdim,           \
                     Tensor& out) {                                                                          \
    variance<k##name>(context, self, dim, unbiased ? 1 : 0, is_root, keepdim, out);                          \
    return out;                                                                                              \
  }                                                                                                          \
  Tensor& name##_correction_out(KernelRuntimeContext& context, const Tensor& self,                           \
                                executorch::aten::OptionalArrayRef<int64_t> dim,                             \
                                const std::optional<Scalar>& correction, bool keepdim, Tensor& out) {        \
    variance<k##name##Correction>(context, self, dim, correction_or_one(correction), is_root, keepdim, out); \
    return out;                                                                                              \
  }

// And, by its template `variance_and_mean`, of the two together.
#define OPSMITH_VARIANCES                                                                                 \
  OPSMITH_VARIANCE(var, false)                                                                            \
  OPSMITH_VARIANCE(std, true)                                                                             \
  constexpr char kVarMean[] = "var_mean.correction_out";                                                  \
  std::tuple<Tensor&, Tensor&> var_mean_correction_out(                                                   \
      KernelRuntimeContext& context, const Tensor& self, executorch::aten::OptionalArrayRef<int64_t> dim, \
      const std::optional<Scalar>& correction, bool keepdim, Tensor& out0, Tensor& out1) {                \
    variance_and_mean<kVarMean>(context, self, dim, correction_or_one(correction), keepdim, out0, out1);  \
    return {out0, out1};                                                                                  \
  }
