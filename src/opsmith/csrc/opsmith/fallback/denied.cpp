// The boxed kernels of fallback.h that refuse.
#include <opsmith/fallback/fallback.h>

#include <opsmith/fallback/fallback_counts.h>
#include <opsmith/fallback/fallback_policy.h>
#include <opsmith/fallback/policy_reasons.h>
#include <opsmith/fallback/refusal.h>

#include <c10/util/StringUtil.h>

namespace opsmith {
namespace {

// The process may allow what the description refuses.
void refuse_unless_overridden(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              torch::jit::Stack* stack, const char* default_reason,
                              const std::string& to_allow) {
  switch (fallback_permission(op.operator_name())) {
    case Permission::kAllowed:
    case Permission::kAllowedWithWarning:
      fallback(op, keys, stack);
      return;
    case Permission::kAsDescribed:
    case Permission::kDenied:
      count_denied(op);
      const std::string planned = policy_reason(op.operator_name());
      throw_refused(op, torch::jit::last(*stack, op.schema().arguments().size()),
                    planned.empty() ? default_reason : planned, to_allow);
  }
}

}  // namespace

void denied(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  refuse_unless_overridden(op, keys, stack,
                           "no library has a kernel for it, and the description forbids the fallback",
                           c10::str("allow the fallback: take ", plan_name(op.operator_name()),
                                    " out of `fallback: {deny: [...]}`."));
}

void missing(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  refuse_unless_overridden(
      op, keys, stack, "no library has a kernel for it, and the description has no fallback",
      c10::str("allow the fallback for it: `fallback: {only: [", plan_name(op.operator_name()), "]}`."));
}

}  // namespace opsmith
