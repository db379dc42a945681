// How a kernel rejects a call: it logs the reason, which is what a user gets to read (PyTorch's exception, or
// ExecuTorch's log), and marks the context as failed. Kernels neither abort nor throw.
//
// The error decides what PyTorch's exception is: NotFound, for an index or a dimension that does not exist,
// is IndexError, NotSupported is NotImplementedError, and others are RuntimeError.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/kernel/kernel_includes.h>

#include <cstdarg>
#include <cstdio>

namespace opsmith {

// Note [Two callers]
// On a device, PyTorch has checked a call before the kernel sees it: its meta functions give results their
// shapes, and the bridge refuses what an out cannot hold, by ATen's rules, under which a result may be
// written to an out of another dtype or layout. In ExecuTorch nobody has, and its rules are narrower: most
// results have to have exactly one dtype, and Tensors of one call one dim order. A kernel that differs by
// that asks who calls; so does one whose operator changed with a release of PyTorch. The device's library has
// the definitions that are not weak, in csrc/bridge/lean_call.cpp.
namespace caller {
#if defined(__GNUC__)
__attribute__((weak, visibility("hidden"))) bool has_checked = false;
__attribute__((weak, visibility("hidden"))) bool limits_saturate = false;  // that of torch_version.h
#else
inline constexpr bool has_checked = false;
inline constexpr bool limits_saturate = false;
#endif
}  // namespace caller

// Whether ExecuTorch's rules hold, and not ATen's.
inline bool in_executorch() {
  return !caller::has_checked;
}

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

// Whether there is one truth value for each of the results that a caller may want; rejects the call where
// not.
inline bool is_mask_of(KernelRuntimeContext& context, executorch::aten::ArrayRef<bool> output_mask,
                       size_t results) {
  return output_mask.size() == results ||
         reject(context, Error::InvalidArgument, "output_mask has %zu values, and there are %zu results",
                output_mask.size(), results);
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
