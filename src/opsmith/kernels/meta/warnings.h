// What ATen's own kernels warn of before they compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace opsmith::meta_functions {

// Of a variance, or of what is made of it, whose divisor is not positive; `result` has its sizes.
inline void warn_of_correction(const char* name, const at::Tensor& self, const at::Tensor& result,
                               double correction) {
  const int64_t count = result.numel() == 0 ? 0 : self.numel() / result.numel();
  if (static_cast<double>(count) <= correction) {
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
  }
}

// Of a condition of bytes in where().
inline void warn_of_byte_condition(const at::Tensor& condition) {
  if (condition.scalar_type() == at::kByte) {
    TORCH_WARN_ONCE(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a "
        "future "
        "version of PyTorch. Use a boolean condition instead.");
  }
}

}  // namespace opsmith::meta_functions
