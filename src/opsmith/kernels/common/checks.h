// How a kernel rejects a call: it logs the reason, which is what a user gets to read (PyTorch's exception, or
// ExecuTorch's log), and marks the context as failed. Kernels neither abort nor throw.
//
// The error decides what PyTorch's exception is: NotFound, for an index or a dimension that does not exist,
// is IndexError, NotSupported is NotImplementedError, and others are RuntimeError.
#pragma once

#include <executorch/runtime/kernel/kernel_includes.h>

#include <cstdarg>
#include <cstdio>

namespace opsmith {

using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

// Logs the message (as printf formats it, up to 255 characters) and fails the call. Always false, so that
// checks can `return reject(...)`.
#ifdef __GNUC__
__attribute__((format(printf, 3, 4), noinline, cold))
#endif
inline bool reject(KernelRuntimeContext& context, Error error, const char* format, ...) {
  char text[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  ET_LOG(Error, "%s", text);
  context.fail(error);
  return false;
}

}  // namespace opsmith

// Rejects the call with the reason and returns `result` where the condition does not hold.
#define OPSMITH_CHECK(context, condition, error, result, ...)                       \
  do {                                                                              \
    if (!(condition)) {                                                             \
      ::opsmith::reject(context, ::executorch::runtime::Error::error, __VA_ARGS__); \
      return result;                                                                \
    }                                                                               \
  } while (false)
