// See refusal.h.
#include <opsmith/fallback/refusal.h>

#include <opsmith/device/driver.h>
#include <opsmith/fallback/boxed_tensors.h>

#include <c10/util/StringUtil.h>

namespace opsmith {
namespace {

std::string lines_for_a_kernel(const c10::OperatorName& name) {
  std::string kernel = name.name.substr(name.name.rfind(':') + 1);
  if (!name.overload_name.empty()) {
    kernel += "_" + name.overload_name;
  }
  return c10::str("\n  - op: ", plan_name(name), "\n    kernel_name: ", device_type_name(), "::", kernel);
}

std::string description(const at::Tensor& tensor) {
  return c10::str(c10::getDtypeNames(tensor.scalar_type()).first, tensor.sizes(), " on ", tensor.device());
}

// "self float32[2, 3] on sim:0, out float64[2] on sim:0"
std::string describe_tensors(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values) {
  std::string text;
  for_each_tensor(schema, values, [&](const c10::Argument& argument, const at::Tensor& tensor) {
    text += c10::str(text.empty() ? "" : ", ", argument.name(), " ", description(tensor));
  });
  return text;
}

std::string refusal(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                    const std::string& reason) {
  const std::string tensors = describe_tensors(op.schema(), values);
  return c10::str(full_name(op.operator_name()), " is not available on ", device_type_name(), ": ", reason,
                  tensors.empty() ? std::string(".") : ". It was called with " + tensors + ".");
}

}  // namespace

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::OperatorName parsed_name(std::string_view full_name) {
  const size_t dot = full_name.find('.');
  const std::string_view overload = dot == std::string_view::npos ? "" : full_name.substr(dot + 1);
  return {std::string(full_name.substr(0, dot)), std::string(overload)};
}

std::string plan_name(const c10::OperatorName& name) {
  std::string full = full_name(name);
  return full.starts_with("aten::") ? full.substr(6) : full;
}

[[noreturn]] void throw_mkldnn(const c10::OperatorName& name, const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, full_name(name), " is not available on ", device_type_name(), ": its ",
                              what,
                              " is an mkldnn tensor, which is of the CPU only. Call it on the CPU: move ",
                              "its arguments there with .cpu().");
}

[[noreturn]] void throw_result_stays_on_cpu(const c10::OperatorName& name, const c10::Type& type) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, full_name(name), " is not available on ", device_type_name(),
      ": it falls back to the CPU, and its result is a ", type.annotation_str(),
      ", in which tensors would stay there. Let the operator return Tensor or Tensor[], "
      "or call it on the CPU: move its arguments there with .cpu().");
}

void throw_mixed_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values, c10::Device device,
                         c10::Device other) {
  c10::Device first = device;
  bool seen = false;
  for_each_tensor(op.schema(), values, [&](const c10::Argument&, const at::Tensor& tensor) {
    if (!seen && (tensor.device() == device || tensor.device() == other)) {
      first = tensor.device();
      seen = true;
    }
  });
  const c10::Device second = first == device ? other : device;
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first,
              " and ", second, "! (", full_name(op.operator_name()), " was called with ",
              describe_tensors(op.schema(), values), "; move them to one device, say with .to(\"", device,
              "\"))");
}

void throw_refused(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                   const std::string& reason, const std::string& otherwise) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, refusal(op, values, reason),
                              " Add a kernel for it to one of the backend's libraries:",
                              lines_for_a_kernel(op.operator_name()), "\nor ", otherwise);
}

void throw_no_cpu_kernel(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                         const std::string& planned) {
  // Of a custom operator the plan cannot know whether another library has a CPU kernel.
  TORCH_CHECK_NOT_IMPLEMENTED(planned.empty(), refusal(op, values, planned));
  TORCH_CHECK_NOT_IMPLEMENTED(false, full_name(op.operator_name()), " is not available on ",
                              device_type_name(),
                              ": the description names no kernel for it, and it cannot fall back because "
                              "there is no CPU kernel either. "
                              "Add a kernel for it to one of the backend's libraries:",
                              lines_for_a_kernel(op.operator_name()));
}

void check_nested_sizes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto values = torch::jit::last(stack, schema.arguments().size());
  for_each_tensor(schema, values, [&](const c10::Argument& argument, const at::Tensor& tensor) {
    const bool is_size = tensor.scalar_type() == at::kLong && &argument != &schema.arguments().front();
    TORCH_CHECK(!is_size || tensor.is_cpu(), full_name(op.operator_name()), ": `", argument.name(),
                "` is on ", tensor.device(),
                ", but sizes of nested tensors are on the CPU: pass it with .cpu()");
  });
}

}  // namespace opsmith
