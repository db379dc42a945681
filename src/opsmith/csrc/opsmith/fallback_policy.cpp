// See fallback_policy.h.
#include <opsmith/fallback_policy.h>

#include <opsmith/driver.h>
#include <opsmith/refusal.h>

#include <torch/library.h>

#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_set>

namespace opsmith {
namespace {

struct Override {
  Permission permission = Permission::kAsDescribed;
  // As the plan calls them; empty: all operators.
  std::unordered_set<std::string> only;
  // How the user wrote it, for error messages, and how to take it back.
  std::string origin;
  std::string remedy;
};

std::shared_mutex mutex;
Override current;

Override get_override() {
  const std::shared_lock lock(mutex);
  return current;
}

// The operator names of the override are Python's to check: it knows the plan.
void set_fallback_override(const std::string& mode, const std::vector<std::string>& only, std::string origin,
                           std::string remedy) {
  const std::unique_lock lock(mutex);
  current.permission = mode == "deny"   ? Permission::kDenied
                       : mode == "warn" ? Permission::kAllowedWithWarning
                       : mode == "cpu"  ? Permission::kAllowed
                                        : Permission::kAsDescribed;
  current.only = {only.begin(), only.end()};
  current.origin = std::move(origin);
  current.remedy = std::move(remedy);
  detail::fallback_overridden = current.permission != Permission::kAsDescribed;
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("set_fallback_override(str mode, str[] only, str origin, str remedy) -> ()", &set_fallback_override);
}

}  // namespace

Permission detail::overriding_permission(const c10::OperatorName& name) {
  const std::shared_lock lock(mutex);
  if (current.only.empty() || current.only.contains(plan_name(name))) {
    return current.permission;
  }
  // To allow some is to deny the others, as `only` of a description; to deny some leaves the others alone.
  return current.permission == Permission::kDenied ? Permission::kAsDescribed : Permission::kDenied;
}

void warn_of_fallback(const c10::OperatorHandle& op) {
  const std::string name = plan_name(op.operator_name());
  TORCH_WARN(full_name(op.operator_name()), " runs on the CPU, because ", device_type_name(),
             " has no kernel for this call; `opsmith explain ", name, "` says why");
}

void throw_fallback_denied(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                           const std::string* refusal) {
  const Override denied = get_override();
  const std::string because =
      refusal != nullptr ? "because the kernel refused: " + *refusal + "; " + denied.origin + " denies that"
                         : c10::str("which ", denied.origin, " denies; `opsmith explain ",
                                    plan_name(op.operator_name()), "` says why");
  throw_refused(op, values, "it would fall back to the CPU, " + because, denied.remedy);
}

}  // namespace opsmith
