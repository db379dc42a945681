// Running operators on the CPU and refusing operators. See fallback.h.
#include <opsmith/fallback.h>

#include <opsmith/device.h>
#include <opsmith/driver.h>
#include <opsmith/generator.h>

#include <ATen/core/jit_type.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <shared_mutex>
#include <string>
#include <unordered_map>

namespace opsmith {
namespace {

// ---- what a CPU kernel must not see of the thread's state ----

constexpr c10::DispatchKeySet kLeftBehind =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

// ---- what the schemas do not say ----

// Operators that write to arguments which their schema does not mark as written: the running statistics, by
// name. Matters only without a host window, where what is not known to be written is not copied back.
constexpr std::array<std::string_view, 3> kWritesRunningStatistics = {
    "aten::native_batch_norm",
    "aten::batch_norm_update_stats",
    "aten::batch_norm_gather_stats_with_counts",
};

bool writes(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  if (const c10::AliasInfo* alias = argument.alias_info(); alias != nullptr && alias->isWrite()) {
    return true;
  }
  return C10_UNLIKELY(!has_host_window()) && argument.name().starts_with("running_") &&
         std::find(kWritesRunningStatistics.begin(), kWritesRunningStatistics.end(), schema.name()) !=
             kWritesRunningStatistics.end();
}

// ---- words for error messages ----

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// As the plan and the manifests call operators: without "aten::".
std::string plan_name(const c10::OperatorName& name) {
  std::string full = full_name(name);
  return full.starts_with("aten::") ? full.substr(6) : full;
}

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

// Calls visit(argument, tensor) for each defined tensor among the arguments of a boxed call.
template <class Visit>
void for_each_tensor(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values,
                     const Visit& visit) {
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) {
        visit(schema.arguments()[i], value.toTensor());
      }
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) {
          visit(schema.arguments()[i], element.toTensor());
        }
      }
    }
  }
}

// "self float32[2, 3] on sim:0, out float64[2] on sim:0"
std::string describe_tensors(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values) {
  std::string text;
  for_each_tensor(schema, values, [&](const c10::Argument& argument, const at::Tensor& tensor) {
    text += c10::str(text.empty() ? "" : ", ", argument.name(), " ", description(tensor));
  });
  return text;
}

const char* unsupported_kind(const at::Tensor& tensor) {
  if (tensor.is_quantized()) {
    return "quantized";
  }
  if (tensor.is_nested()) {
    return "nested";
  }
  if (tensor.is_mkldnn()) {
    return "mkldnn";
  }
  return tensor.layout() == at::kStrided ? nullptr : "sparse";
}

[[noreturn]] void throw_unsupported(const c10::OperatorName& name, const char* what, const char* kind) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, full_name(name), " is not available on ", device_type_name(), ": its ", what, " is a ", kind,
      " tensor, and ", device_type_name(),
      " has only strided (dense) ones. Call it on the CPU: move its arguments there with "
      ".cpu().");
}

// ---- the devices of a call ----

// Where a boxed call takes place.
struct Place {
  c10::DeviceIndex device;   // of the tensors
  c10::DeviceIndex results;  // -1: on the CPU, since the call asks for it
};

[[noreturn]] void throw_mixed_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                                      c10::Device device, c10::Device other) {
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

Place place_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values) {
  const c10::FunctionSchema& schema = op.schema();
  std::optional<c10::Device> device;     // of the first tensor on this device type
  std::optional<c10::Device> other;      // of the first tensor that cannot take part with it
  std::optional<c10::Device> requested;  // by a Device argument
  const auto look = [&](const at::Tensor& tensor, bool may_be_on_cpu) {
    const c10::Device at = tensor.device();
    if (at.is_privateuseone()) {
      if (!device.has_value()) {
        device = at;
      } else if (C10_UNLIKELY(at != *device) && !other.has_value()) {
        other = at;
      }
    } else if (!(at.is_cpu() && may_be_on_cpu) && !other.has_value()) {
      other = at;
    }
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined()) {
        // CPU scalars mix with tensors of any device, as everywhere in PyTorch, but not as the thing written.
        look(tensor, tensor.is_cpu() && tensor.dim() == 0 && !writes(schema, schema.arguments()[i]));
      }
    } else if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        const at::Tensor& tensor = element.toTensor();
        if (tensor.defined()) {
          look(tensor, tensor.is_cpu() && tensor.dim() == 0 && !writes(schema, schema.arguments()[i]));
        }
      }
    } else if (value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {  // the indices of index operators
        if (element.isTensor() && element.toTensor().defined()) {
          look(element.toTensor(), /*may_be_on_cpu=*/true);
        }
      }
    } else if (value.isDevice()) {
      requested = value.toDevice();
    }
  }
  if (C10_UNLIKELY(device.has_value() && other.has_value())) {
    throw_mixed_devices(op, values, *device, *other);
  }
  const bool requests_this_type = requested.has_value() && requested->is_privateuseone();
  Place place{};
  place.device = device.has_value()   ? device->index()
                 : requests_this_type ? checked_device(requested->index())
                                      : current_device();
  place.results = requests_this_type      ? checked_device(requested->index())
                  : requested.has_value() ? -1
                                          : place.device;
  return place;
}

// ---- arguments and results ----

c10::IValue on_cpu(HostCall& call, const c10::List<at::Tensor>& tensors, Access access) {
  c10::List<at::Tensor> views;
  views.reserve(tensors.size());
  for (const c10::IValue& tensor : c10::IValue(tensors).toListRef()) {
    views.push_back(call.view(tensor.toTensor(), access));
  }
  return views;
}

c10::IValue on_cpu(HostCall& call, const c10::List<std::optional<at::Tensor>>& tensors, Access access) {
  c10::List<std::optional<at::Tensor>> views;
  views.reserve(tensors.size());
  for (const c10::IValue& tensor : c10::IValue(tensors).toListRef()) {
    views.push_back(tensor.isTensor() ? std::optional<at::Tensor>(call.view(tensor.toTensor(), access))
                                      : std::nullopt);
  }
  return views;
}

bool is_generator(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  if (type.kind() != c10::TypeKind::OptionalType) {
    return type.kind() == c10::TypeKind::GeneratorType;
  }
  return type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

void move_to_cpu(HostCall& call, const c10::FunctionSchema& schema, const c10::Argument& argument,
                 c10::DeviceIndex device, c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.is_privateuseone()) {
      value = call.view(tensor, writes(schema, argument) ? Access::kWrite : Access::kRead);
    }
  } else if (value.isNone()) {
    if (C10_UNLIKELY(is_generator(argument))) {
      value = cpu_generator(default_generator(device));
    }
  } else if (value.isTensorList()) {
    value = on_cpu(call, value.toTensorList(), writes(schema, argument) ? Access::kWrite : Access::kRead);
  } else if (value.isOptionalTensorList()) {
    value =
        on_cpu(call, value.toOptionalTensorList(), writes(schema, argument) ? Access::kWrite : Access::kRead);
  } else if (value.isDevice()) {
    if (value.toDevice().is_privateuseone()) {
      value = c10::Device(c10::kCPU);
    }
  } else if (C10_UNLIKELY(value.isGenerator())) {
    const at::Generator& generator = value.toGenerator();
    TORCH_CHECK(!generator.device().is_cpu(), "Expected a '", device_type_name(),
                "' device type for generator but found 'cpu'. Make one with torch.Generator(device=\"",
                device_type_name(), "\").");
    value = cpu_generator(generator);
  }
}

void move_to_device(HostCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    value = call.result(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> results;
    const c10::List<at::Tensor> list = std::move(value).toTensorList();
    results.reserve(list.size());
    for (const c10::IValue& tensor : c10::IValue(list).toListRef()) {
      results.push_back(call.result(tensor.toTensor()));
    }
    value = std::move(results);
  }
}

// ---- reasons of the plan ----

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

// "aten::foo.out has no kernel on sim: <reason>. It was called with ..."
std::string refusal(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                    const char* default_reason) {
  const c10::FunctionSchema& schema = op.schema();
  std::string reason = policy_reasons().get(plan_name(op.operator_name()));
  if (reason.empty()) {
    reason = default_reason;
  }
  const std::string tensors = describe_tensors(schema, torch::jit::last(stack, schema.arguments().size()));
  return c10::str(full_name(op.operator_name()), " is not available on ", device_type_name(), ": ", reason,
                  tensors.empty() ? std::string(".") : ". It was called with " + tensors + ".");
}

}  // namespace

HostCall::HostCall(c10::DeviceIndex device, const c10::OperatorName& operator_name)
    : device_(device),
      operator_name_(operator_name),
      memory_(has_host_window() ? device : static_cast<c10::DeviceIndex>(-1)),
      excluded_(kLeftBehind) {
  if (device >= 0) {
    // Also without arguments on the device: the results' memory may be in use by what is still queued.
    views_.wait_for(device);
  }
}

at::Tensor HostCall::view(const at::Tensor& tensor, Access access) {
  if (C10_UNLIKELY(tensor.defined() && tensor.layout() != at::kStrided) || tensor.is_quantized()) {
    throw_unsupported(operator_name_, "argument", unsupported_kind(tensor));
  }
  if (C10_UNLIKELY(tensor.defined() && tensor._is_zerotensor())) {
    return at::zeros({}, tensor.options().device(c10::kCPU))
        .expand(tensor.sizes());  // it has no memory to look at
  }
  return views_.view(tensor, access);
}

std::optional<at::Tensor> HostCall::view(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(view(*tensor)) : std::nullopt;
}

at::Tensor HostCall::result(const at::Tensor& host) {
  if (!host.defined() || device_ < 0) {
    return host;
  }
  if (const char* kind = unsupported_kind(host)) {
    throw_unsupported(operator_name_, "result", kind);
  }
  return views_.on_device(host, device_);
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<c10::Argument>& arguments = schema.arguments();
  const size_t first = stack->size() - arguments.size();
  const Place place = place_of(op, torch::jit::last(*stack, arguments.size()));
  if (C10_UNLIKELY(!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))) {
    // Of a custom operator the plan cannot know whether another library has a CPU kernel.
    TORCH_CHECK_NOT_IMPLEMENTED(policy_reasons().get(plan_name(op.operator_name())).empty(),
                                refusal(op, *stack, ""));
    TORCH_CHECK_NOT_IMPLEMENTED(false, full_name(op.operator_name()), " is not available on ",
                                device_type_name(),
                                ": the description names no kernel for it, and it cannot fall back because "
                                "there is no CPU kernel either. "
                                "Add a kernel for it to one of the backend's libraries:",
                                lines_for_a_kernel(op.operator_name()));
  }

  HostCall call(place.results, op.operator_name());
  for (size_t i = 0; i < arguments.size(); ++i) {
    move_to_cpu(call, schema, arguments[i], place.device, (*stack)[first + i]);
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  } catch (c10::NotImplementedError& error) {
    error.add_context(c10::str(full_name(op.operator_name()), " ran on the CPU because ", device_type_name(),
                               " has no kernel for it"));
    throw;
  }
  call.commit();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    move_to_device(call, (*stack)[i]);
  }
}

void denied(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, refusal(op, *stack, "no library has a kernel for it, and the description forbids the fallback"),
      " Add a kernel for it to one of the backend's libraries:", lines_for_a_kernel(op.operator_name()),
      "\nor allow the fallback: take ", plan_name(op.operator_name()), " out of `fallback: {deny: [...]}`.");
}

void missing(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, refusal(op, *stack, "no library has a kernel for it, and the description has no fallback"),
      " Add a kernel for it to one of the backend's libraries:", lines_for_a_kernel(op.operator_name()),
      "\nor allow the fallback for it: `fallback: {only: [", plan_name(op.operator_name()), "]}`.");
}

void unsupported_layout(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* /*stack*/) {
  const char* kind = keys.has(c10::DispatchKey::NestedTensor) ? "nested"
                     : keys.has(c10::DispatchKey::Quantized)  ? "quantized"
                                                              : "sparse";
  throw_unsupported(op.operator_name(), "argument or result", kind);
}

void set_policy_reason(const char* operator_name, const char* reason) {
  std::string name = operator_name;
  policy_reasons().set(name.starts_with("aten::") ? name.substr(6) : name, reason);
}

}  // namespace opsmith
