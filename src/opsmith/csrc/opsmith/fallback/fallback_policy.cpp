// See fallback_policy.h.
#include <opsmith/fallback/fallback_policy.h>

#include <opsmith/device/driver.h>
#include <opsmith/fallback/refusal.h>

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
Override override_now;

Override get_override() {
  const std::shared_lock lock(mutex);
  return override_now;
}

// The operator names of the override are Python's to check: it knows the plan.
void set_fallback_override(const std::string& mode, const std::vector<std::string>& only, bool host_kernels,
                           std::string origin, std::string remedy) {
  const std::unique_lock lock(mutex);
  override_now.permission = mode == "deny"   ? Permission::kDenied
                            : mode == "warn" ? Permission::kAllowedWithWarning
                            : mode == "cpu"  ? Permission::kAllowed
                                             : Permission::kAsDescribed;
  override_now.only = {only.begin(), only.end()};
  override_now.origin = std::move(origin);
  override_now.remedy = std::move(remedy);
  detail::fallback_overridden = override_now.permission != Permission::kAsDescribed;
  detail::host_kernels_overridden = detail::fallback_overridden && host_kernels;
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("set_fallback_override(str mode, str[] only, bool host_kernels, str origin, str remedy) -> ()",
        &set_fallback_override);
}

constexpr const char* kOnCopies = "its kernel runs on the host, on copies";

std::string explained(const c10::OperatorName& name) {
  return c10::str("; `opsmith explain ", plan_name(name), "` says why");
}

}  // namespace

Permission detail::overriding_permission(const c10::OperatorName& name) {
  const std::shared_lock lock(mutex);
  if (override_now.only.empty() || override_now.only.contains(plan_name(name))) {
    return override_now.permission;
  }
  // To allow some is to deny the others, as `only` of a description; to deny some leaves the others alone.
  return override_now.permission == Permission::kDenied ? Permission::kAsDescribed : Permission::kDenied;
}

void warn_of_fallback(const c10::OperatorHandle& op) {
  TORCH_WARN(full_name(op.operator_name()), " runs on the CPU, because ", device_type_name(),
             " has no kernel for this call", explained(op.operator_name()));
}

void throw_fallback_denied(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                           const std::string* refusal) {
  const Override denied = get_override();
  const std::string because =
      refusal != nullptr ? "because the kernel refused: " + *refusal + "; " + denied.origin + " denies that"
                         : c10::str("which ", denied.origin, " denies", explained(op.operator_name()));
  throw_refused(op, values, "it would fall back to the CPU, " + because, denied.remedy);
}

void warn_of_host_kernel(const c10::OperatorName& name) {
  TORCH_WARN(full_name(name), " runs on the CPU, because ", kOnCopies, explained(name));
}

void throw_host_kernel_denied(const c10::OperatorHandle& op) {
  const Override denied = get_override();
  throw_refused(op, {},
                c10::str(kOnCopies, ", which ", denied.origin, " denies", explained(op.operator_name())),
                denied.remedy);
}

}  // namespace opsmith
