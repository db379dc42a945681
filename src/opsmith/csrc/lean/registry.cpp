#include <lean/registry.h>

#include <array>

#include <executorch/runtime/kernel/operator_registry.h>

namespace {

// As many as ExecuTorch's own registry takes.
constexpr size_t kMostKernels = 2000;

// Zero-initialised, so that it is there before any registration.
struct Registry {
  size_t count;
  std::array<const char*, kMostKernels> names;
  std::array<const void*, kMostKernels> functions;
} registry;

}  // namespace

namespace executorch::runtime {

Error register_kernels(const Span<const Kernel> kernels) {
  for (const Kernel& kernel : kernels) {
    if (registry.count == kMostKernels) {
      return Error::RegistrationExceedingMaxKernels;
    }
    registry.names[registry.count] = kernel.name_;
    registry.functions[registry.count] = reinterpret_cast<const void*>(kernel.op_);
    ++registry.count;
  }
  return Error::Ok;
}

}  // namespace executorch::runtime

size_t opsmith_lean_kernel_count() {
  return registry.count;
}

const char* opsmith_lean_kernel_name(size_t index) {
  return registry.names[index];
}

const void* opsmith_lean_kernel_function(size_t index) {
  return registry.functions[index];
}
