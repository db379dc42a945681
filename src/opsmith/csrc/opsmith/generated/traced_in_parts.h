// Kernels of operators that PyTorch's tracer leaves out, since it records what they call: convolution.
#pragma once

#include <opsmith/fallback/fallback.h>

#include <ATen/TracerMode.h>
#include <c10/macros/Macros.h>

namespace opsmith {

template <auto kernel, class Operator>
struct TracedInParts;

// `kernel`; but while torch.jit.trace records a program PyTorch's composite kernel, whose parts it records.
// What a kernel of the operator itself returns it would take for a constant.
template <class R, class... Args, R (*kernel)(Args...), class Operator>
struct TracedInParts<kernel, Operator> {
  static R call(Args... args) {
    if (C10_UNLIKELY(at::tracer::impl::is_dispatch_enabled())) {
      return call_boxed<Operator, &kernel_of<c10::DispatchKey::CompositeExplicitAutograd>>(args...);
    }
    return kernel(args...);
  }
};

}  // namespace opsmith
