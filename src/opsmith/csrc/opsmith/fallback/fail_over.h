// Calls that a kernel has refused, as generated functions hand them to the CPU.
#pragma once

#include <opsmith/fallback/fallback.h>
#include <opsmith/fallback/fallback_cause.h>
#include <opsmith/unsupported.h>

#include <utility>

namespace opsmith {

// The operator on the CPU, after its kernel refused.
template <class Op, class... Arguments>
decltype(auto) fail_over(const Unsupported& refusal, Arguments&&... arguments) {
  const FallbackCause cause(refusal.reason());
  return call_boxed<Op, &fallback>(std::forward<Arguments>(arguments)...);
}

}  // namespace opsmith
