// See pure_outputs.h.
#include <opsmith/fallback/pure_outputs.h>

#include <string>
#include <unordered_set>

namespace opsmith {
namespace {

// By the address of the schema: ATen's operators stay where they are.
std::unordered_set<const c10::FunctionSchema*>& schemas() {
  static auto* const set = new std::unordered_set<const c10::FunctionSchema*>();
  return *set;
}

}  // namespace

void set_pure_outputs(std::initializer_list<const char*> operators) {
  for (const std::string name : operators) {
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (op.has_value()) {
      schemas().insert(&op->schema());
    }
  }
}

bool has_pure_outputs(const c10::OperatorHandle& op) {
  return schemas().contains(&op.schema());
}

}  // namespace opsmith
