// WRAP_TO_ATEN, which ExecuTorch's wheel lacks: a lean kernel as a function on at::Tensor on the CPU.
//
//   TORCH_LIBRARY_IMPL(myop, CPU, m) { m.impl("custom_linear.out", WRAP_TO_ATEN(custom_linear_out, 3)); }
#pragma once

#include <cpu/operator.h>

namespace opsmith {

namespace detail {

template <auto kKernel, size_t kOut, const LeanCall& kCall>
constexpr auto wrap_to_aten() {
  using Traits = KernelTraits<kKernel>;
  static_assert(kOut + 1 == Traits::kArguments,
                "WRAP_TO_ATEN's number is the place of `out`, which comes last");
  static_assert(std::is_same_v<typename Traits::template Argument<kOut>, lean::Tensor&>,
                "WRAP_TO_ATEN wraps an out variant, whose last argument is a Tensor&");
  return &opsmith::CpuOperator<kKernel, kCall>::out;
}

}  // namespace detail

}  // namespace opsmith

// The lean kernel `function`, with KernelRuntimeContext& first and `out` as argument `index`, counted from
// the first Tensor on, as a function on at::Tensor.
#define WRAP_TO_ATEN(function, index)                                              \
  ([]() -> auto {                                                                  \
    static constexpr ::opsmith::LeanCall kCall{#function, "`" #function "`",       \
                                               ::opsmith::DimOrders::kContiguous}; \
    return ::opsmith::detail::wrap_to_aten<&function, index, kCall>();             \
  }())
