// The process's policy for the fallback, in the place of the description's: OPSMITH_FALLBACK and
// opsmith.fallback().
//
// The description's policy is the plan's, and compiled in: operators that it denies are registered as
// denied(). An override changes what fallback(), denied() and missing() do with a call, for all threads,
// until it ends. One that denies or warns holds for kernels that run on the host, on copies, too, unless it
// says otherwise.
#pragma once

#include <atomic>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace opsmith {

enum class Permission {
  kAsDescribed,
  kAllowed,
  kAllowedWithWarning,
  kDenied,
};

namespace detail {
inline std::atomic<bool> fallback_overridden = false;
inline std::atomic<bool> host_kernels_overridden = false;
Permission overriding_permission(const c10::OperatorName& name);
}  // namespace detail

// The permission that the override, if there is one, gives the operator.
inline Permission fallback_permission(const c10::OperatorName& name) {
  if (C10_LIKELY(!detail::fallback_overridden.load(std::memory_order_relaxed))) {
    return Permission::kAsDescribed;
  }
  return detail::overriding_permission(name);
}

// The override allows the operator to run on the CPU, and wants that said: a Python UserWarning.
void warn_of_fallback(const c10::OperatorHandle& op);

// The override denies it. `refusal` is what a kernel said that refused; null where there is no kernel. Throws
// NotImplementedError.
[[noreturn]] void throw_fallback_denied(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                                        const std::string* refusal);

// Whether the override holds for kernels that run on the host, on copies: fallback_permission() is theirs,
// too.
inline bool host_kernels_are_overridden() {
  return C10_UNLIKELY(detail::host_kernels_overridden.load(std::memory_order_relaxed));
}

// The counterparts for such kernels.
void warn_of_host_kernel(const c10::OperatorName& name);
[[noreturn]] void throw_host_kernel_denied(const c10::OperatorHandle& op);

}  // namespace opsmith
