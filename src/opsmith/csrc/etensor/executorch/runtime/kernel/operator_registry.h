// Kernels as sources register them themselves, to be found by their names.
#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

namespace executorch::runtime {

// A value on ExecuTorch's stack. On a PyTorch device there is none: kernels are called by their types.
struct EValue;

using OpFunction = void (*)(KernelRuntimeContext&, Span<EValue*>);

struct Kernel {
  constexpr Kernel() = default;
  constexpr explicit Kernel(const char* name, OpFunction function) : name_(name), op_(function) {}

  const char* name_ = nullptr;
  OpFunction op_ = nullptr;
};

ET_NODISCARD Error register_kernels(const Span<const Kernel> kernels);
ET_NODISCARD inline Error register_kernel(const Kernel& kernel) {
  return register_kernels({&kernel, 1});
}

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::EValue;
using ::executorch::runtime::Kernel;
using ::executorch::runtime::OpFunction;
using ::executorch::runtime::register_kernel;
using ::executorch::runtime::register_kernels;
}  // namespace torch::executor
