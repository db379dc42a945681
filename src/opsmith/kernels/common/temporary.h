// Memory that a kernel needs while it runs.
#pragma once

#include <cinttypes>
#include <cstdint>

#include "checks.h"

namespace opsmith {

// `count` elements from the runtime, aligned to a cache line; null, with the call rejected, where it gives
// none.
template <class T>
T* temporary(KernelRuntimeContext& context, int64_t count) {
  const auto memory = context.allocate_temp(static_cast<size_t>(count > 0 ? count : 1) * sizeof(T), 64);
  if (!memory.ok()) {
    reject(context, memory.error(), "no temporary memory for %" PRId64 " elements of %zu bytes", count,
           sizeof(T));
    return nullptr;
  }
  return static_cast<T*>(memory.get());
}

}  // namespace opsmith
