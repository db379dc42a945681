// Memory that a kernel needs while it runs.
#pragma once

#include <algorithm>
#include <cstdint>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace opsmith::optimized {

// Aligned to a cache line. Null, with the call failed in the name of `what`, where the runtime gives none.
template <class T>
T* temporary(executorch::runtime::KernelRuntimeContext& ctx, const char* what, int64_t elements) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(1, elements)) * sizeof(T);
  const auto memory = ctx.allocate_temp(bytes, 64);
  if (!memory.ok()) {
    ET_LOG(Error, "%s needs %zu bytes of temporary memory", what, bytes);
    ctx.fail(executorch::runtime::Error::MemoryAllocationFailed);
    return nullptr;
  }
  return static_cast<T*>(memory.get());
}

}  // namespace opsmith::optimized
