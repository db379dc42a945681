// Records what composite operators call, for tools/find_parts.
//
// torch.ops.find_parts.record(True) starts, record(False) stops. found() returns a line for each distinct
// outcome of a call, with three columns: the operator; what makes it unfit to be called as a whole; the
// operators on the device that it called itself, each with how often (2: twice or more). Left out are what a
// CPU kernel calls while it serves a fallback, calls that autograd differentiates, which are never caught,
// and those with Tensors that are not strided, for which composites call other operators.
#include <opsmith/fallback/unrecorded.h>

#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

std::atomic<bool> recording = false;
std::mutex found_mutex;
std::set<std::string> found;

struct Argument {
  at::Tensor tensor;
  uint32_t version;
};

struct Frame {
  std::string name;
  bool counted = false;
  bool differentiated = false;
  bool strided = true;
  bool on_device = false;
  std::vector<Argument> arguments;
  std::map<std::string, int> parts;
};

thread_local std::vector<Frame> frames;

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      each_tensor(element, visit);
    }
  }
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

std::string overload(const c10::OperatorName& name) {
  const std::string base = name.name.starts_with("aten::") ? name.name.substr(6) : name.name;
  return name.overload_name.empty() ? base : base + "." + name.overload_name;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Frame frame;
  const std::optional<c10::OperatorName> name = function.operator_name();
  frame.counted = recording && name.has_value() && opsmith::detail::unrecorded_depth == 0;
  if (frame.counted) {
    frame.name = overload(*name);
    const std::optional<c10::FunctionSchema> schema = function.operator_schema();
    for (size_t i = 0; i < function.inputs().size(); ++i) {
      const c10::AliasInfo* alias = schema.has_value() ? schema->arguments()[i].alias_info() : nullptr;
      const bool marked = alias != nullptr && alias->isWrite();
      each_tensor(function.inputs()[i], [&](const at::Tensor& tensor) {
        frame.on_device |= tensor.is_privateuseone();
        frame.strided &= tensor.layout() == at::kStrided;
        frame.differentiated |= c10::GradMode::is_enabled() && tensor.requires_grad();
        frame.arguments.push_back({tensor, marked ? UINT32_MAX : version_of(tensor)});
      });
    }
  }
  frames.push_back(std::move(frame));
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (frames.empty()) {
    return;  // it began before the callback was there
  }
  const Frame frame = std::move(frames.back());
  frames.pop_back();
  if (!frame.counted) {
    return;
  }
  bool on_device = frame.on_device;
  bool stays = false;
  for (const c10::IValue& value : function.outputs()) {
    each_tensor(value, [&](const at::Tensor& result) {
      on_device |= result.is_privateuseone();
      stays |= frame.on_device && result.is_cpu();
    });
  }
  if (!on_device) {
    return;
  }
  if (!frames.empty() && frames.back().counted) {
    int& times = frames.back().parts[frame.name];
    times = std::min(times + 1, 2);
  }
  if (frame.differentiated || !frame.strided) {
    return;
  }
  const bool writes =
      std::any_of(frame.arguments.begin(), frame.arguments.end(), [](const Argument& argument) {
        return argument.version != UINT32_MAX && argument.version != version_of(argument.tensor);
      });
  std::string line = frame.name + "\t" + (writes ? "writes" : stays ? "stays" : "") + "\t";
  for (const auto& [part, times] : frame.parts) {
    line += part + " " + std::to_string(times) + ",";
  }
  const std::lock_guard lock(found_mutex);
  found.insert(std::move(line));
}

void record(bool on) {
  [[maybe_unused]] static const at::CallbackHandle callback =
      at::addGlobalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                .scopes({at::RecordScope::FUNCTION})
                                .needsInputs(true)
                                .needsOutputs(true));
  recording = on;
}

std::vector<std::string> lines() {
  const std::lock_guard lock(found_mutex);
  return {found.begin(), found.end()};
}

}  // namespace

TORCH_LIBRARY(find_parts, m) {
  m.def("record(bool on) -> ()", &record);
  m.def("found() -> str[]", &lines);
}
