// Kernels of operators that PyTorch's tracer leaves out, since it records what they call: convolution.
#pragma once

#include <utility>

#include <ATen/TracerMode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <c10/macros/Macros.h>

namespace opsmith {

template <auto kernel, auto composite>
struct TracedInParts;

// `kernel`; but while torch.jit.trace records a program PyTorch's `composite` kernel, whose parts it records.
// What a kernel of the operator itself returns it would take for a constant.
template <class R, class... Args, R (*kernel)(Args...), auto composite>
struct TracedInParts<kernel, composite> {
  static R call(Args... args) {
    if (C10_UNLIKELY(at::tracer::impl::is_dispatch_enabled())) {
      return composite(std::forward<Args>(args)...);
    }
    return kernel(std::forward<Args>(args)...);
  }
};

}  // namespace opsmith
