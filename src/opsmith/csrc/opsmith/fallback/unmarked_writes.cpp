// See unmarked_writes.h.
#include <opsmith/fallback/unmarked_writes.h>

#include <string>
#include <unordered_set>

#include <ATen/core/dispatch/Dispatcher.h>

namespace opsmith {
namespace {

// By address: ATen's schemas stay where they are.
std::unordered_set<const c10::Argument*>& arguments() {
  static auto* const set = new std::unordered_set<const c10::Argument*>();
  return *set;
}

}  // namespace

void set_unmarked_writes(std::initializer_list<UnmarkedWrites> operators) {
  for (const UnmarkedWrites& each : operators) {
    const std::string name = each.operator_name;
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    for (const char* argument : each.arguments) {
      const auto index = op.has_value() ? op->schema().argumentIndexWithName(argument) : std::nullopt;
      if (index.has_value()) {
        arguments().insert(&op->schema().arguments()[*index]);
      }
    }
  }
}

bool is_written_unmarked(const c10::Argument& argument) {
  return arguments().contains(&argument);
}

}  // namespace opsmith
