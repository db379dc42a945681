// See policy_reasons.h.
#include <opsmith/fallback/policy_reasons.h>

#include <opsmith/fallback/fallback_counts.h>
#include <opsmith/fallback/refusal.h>

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace opsmith {
namespace {

class PolicyReasons {
 public:
  void set(std::string name, std::string reason) {
    const std::unique_lock lock(mutex_);
    reasons_[std::move(name)] = std::move(reason);
  }
  std::string get(const std::string& name) const {
    const std::shared_lock lock(mutex_);
    const auto found = reasons_.find(name);
    return found != reasons_.end() ? found->second : std::string();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, std::string> reasons_;
};

PolicyReasons& policy_reasons() {
  static auto* const reasons = new PolicyReasons();
  return *reasons;
}

}  // namespace

void set_policy_reason(const char* operator_name, const char* reason) {
  std::string name = operator_name;
  policy_reasons().set(name.starts_with("aten::") ? name.substr(6) : name, reason);
}

std::string policy_reason(const c10::OperatorName& name) {
  return policy_reasons().get(plan_name(name));
}

void refuse_as_described(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values) {
  const std::string reason = policy_reason(op.operator_name());
  if (!reason.empty()) {
    count_denied(op);
    throw_refused(op, values, reason, "allow the fallback for it, under the backend's `fallback:`.");
  }
}

}  // namespace opsmith
