// Counting operator calls with a global RecordFunction callback, which costs nothing once it is removed.
#include <opsmith/calls.h>

#include <ATen/core/Dict.h>
#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace opsmith {
namespace {

class CallCounts {
 public:
  void count(c10::OperatorName name) {
    const std::lock_guard lock(mutex_);
    ++counts_[std::move(name)];
  }

  // Starting resets the counts; starting twice does too.
  void switch_on(bool on);

  c10::Dict<std::string, int64_t> by_overload() const {
    c10::Dict<std::string, int64_t> result;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, calls] : counts_) {
      std::string overload = name.name;
      if (overload.starts_with("aten::")) {
        overload.erase(0, 6);
      }
      if (!name.overload_name.empty()) {
        overload += '.';
        overload += name.overload_name;
      }
      result.insert(std::move(overload), calls);
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<c10::OperatorName, int64_t> counts_;
  std::mutex switch_mutex_;
  std::optional<at::CallbackHandle> callback_;
};

CallCounts& call_counts() {
  static auto* const counts = new CallCounts();  // never destroyed: threads may still count at exit
  return *counts;
}

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
  if (detail::uncounted_depth == 0) {
    std::optional<c10::OperatorName> name = function.operator_name();
    if (name.has_value() && !name->name.starts_with("opsmith::")) {  // those that switch the counting
      call_counts().count(*std::move(name));
    }
  }
  return nullptr;
}

void CallCounts::switch_on(bool on) {
  const std::lock_guard switching(switch_mutex_);
  if (callback_.has_value()) {
    at::removeCallback(*callback_);
    callback_.reset();
  }
  if (on) {
    {
      const std::lock_guard lock(mutex_);
      counts_.clear();
    }
    callback_ =
        at::addGlobalCallback(at::RecordFunctionCallback(&on_call).scopes({at::RecordScope::FUNCTION}));
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("count_calls(bool on) -> ()", [](bool on) { call_counts().switch_on(on); });
  m.def("call_counts() -> Dict(str, int)", [] { return call_counts().by_overload(); });
}

}  // namespace opsmith
