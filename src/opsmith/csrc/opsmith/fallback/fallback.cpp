// Running operators on the CPU. See fallback.h.
#include <opsmith/fallback/fallback.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/fallback/fallback_cause.h>
#include <opsmith/fallback/fallback_counts.h>
#include <opsmith/fallback/fallback_policy.h>
#include <opsmith/device/generator.h>
#include <opsmith/device/waiting.h>
#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/host_call.h>
#include <opsmith/fallback/overlapping_out.h>
#include <opsmith/fallback/parts.h>
#include <opsmith/fallback/pure_outputs.h>
#include <opsmith/fallback/policy_reasons.h>
#include <opsmith/fallback/refusal.h>
#include <opsmith/fallback/unmarked_writes.h>
#include <opsmith/fallback/written_argument.h>

#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace opsmith {
namespace {

bool writes(const c10::Argument& argument) {
  return is_written(argument) || is_written_unmarked(argument);
}

// ---- the devices of a call ----

// Where a boxed call takes place.
struct Place {
  c10::DeviceIndex device;   // of the tensors
  c10::DeviceIndex results;  // -1: on the CPU, since the call asks for it
};

bool is_generator_of_device(const c10::IValue& value) {
  return value.isGenerator() && value.toGenerator().defined() &&
         value.toGenerator().device().is_privateuseone();
}

Place place_of_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values) {
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
    if (value.isDevice()) {
      requested = value.toDevice();
      continue;
    }
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      // CPU scalars mix with tensors of any device, as everywhere in PyTorch, but not as the thing written;
      // and so do the indices of index operators.
      look(tensor, tensor.is_cpu() && (is_optional_tensor_list(value) ||
                                       (tensor.dim() == 0 && !writes(schema.arguments()[i]))));
    });
  }
  if (C10_UNLIKELY(device.has_value() && other.has_value())) {
    throw_mixed_devices(op, values, *device, *other);
  }
  if (C10_UNLIKELY(!device.has_value() && other.has_value() && other->is_cpu() &&
                   std::any_of(values.begin(), values.end(), is_generator_of_device) &&
                   !is_in_host_kernel())) {
    throw_generator_of_other_device();
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

bool is_generator(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  if (type.kind() != c10::TypeKind::OptionalType) {
    return type.kind() == c10::TypeKind::GeneratorType;
  }
  return type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

Access access_to(const c10::Argument& argument) {
  return writes(argument) ? Access::kWrite : Access::kRead;
}

// How the operator uses `tensor`, which is its `argument`.
Access access_to(const at::Tensor& tensor, const c10::OperatorHandle& op, const c10::Argument& argument) {
  // Some CPU kernels (gelu.out, avg_pool3d.out, upsample_bilinear2d.out) write to a tensor with gaps as if it
  // had none, or in another order than its own, and leave elements as they were.
  const bool overwrites = C10_UNLIKELY(!has_host_window()) && argument.is_out() &&
                          !is_made_of_parts(tensor) && tensor.is_contiguous(tensor.suggest_memory_format()) &&
                          has_pure_outputs(op);
  return overwrites ? Access::kOverwrite : access_to(argument);
}

void move_to_cpu(HostCall& call, const c10::OperatorHandle& op, const c10::Argument& argument,
                 c10::DeviceIndex device, c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.is_privateuseone()) {
      value = call.view(tensor, access_to(tensor, op, argument));
    }
  } else if (value.isNone()) {
    if (C10_UNLIKELY(is_generator(argument))) {
      value = cpu_generator(default_generator(device));
    }
  } else if (is_tensor_list(value)) {
    value =
        with_views(value, [&](const at::Tensor& tensor) { return call.view(tensor, access_to(argument)); });
  } else if (value.isDevice()) {
    if (value.toDevice().is_privateuseone()) {
      value = c10::Device(c10::kCPU);
    }
  } else if (C10_UNLIKELY(value.isGenerator())) {
    value = cpu_generator(value.toGenerator());
  }
}

// Whether there are tensors in a list, tuple or dictionary, however deep.
bool holds_tensors(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined();
  }
  if (value.isList()) {
    const auto elements = value.toListRef();
    return std::any_of(elements.begin(), elements.end(), holds_tensors);
  }
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    return std::any_of(elements.begin(), elements.end(), holds_tensors);
  }
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      if (holds_tensors(entry.value())) {
        return true;
      }
    }
  }
  return false;
}

void move_to_device(const c10::OperatorHandle& op, HostCall& call, c10::IValue& value) {
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
  } else if (C10_UNLIKELY(value.isPtrType() && holds_tensors(value))) {
    throw_result_stays_on_cpu(op.operator_name(), *value.type());
  }
}

// Of tensors that are not strided.
constexpr c10::DispatchKeySet kOtherLayouts({c10::DispatchKey::Quantized, c10::DispatchKey::Sparse,
                                             c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});

// Applies the policy to a call for `cause`: the process's, or else the description's. The `unregistered` came
// here whatever the plan says of the operator.
void heed_policy(const c10::OperatorHandle& op, const FallbackCause* cause, bool unregistered,
                 c10::ArrayRef<c10::IValue> values) {
  switch (fallback_permission(op.operator_name())) {
    case Permission::kAsDescribed:
      if (C10_UNLIKELY(unregistered || (cause != nullptr && cause->served() != nullptr))) {
        refuse_as_described(op, values);
      }
      return;
    case Permission::kAllowed:
      return;
    case Permission::kAllowedWithWarning:
      warn_of_fallback(op);
      return;
    case Permission::kDenied:
      count_denied(op);
      throw_fallback_denied(op, values, cause != nullptr ? cause->refusal() : nullptr);
  }
}

}  // namespace

std::optional<c10::Device> device_of_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<c10::Device> found;
  const auto look = [&found](const at::Tensor& tensor) {
    if (!found.has_value() && tensor.is_privateuseone()) {
      found = tensor.device();
    }
  };
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      return value.toDevice();
    }
    for_each_tensor(value, look);
  }
  return found;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const Serving serving(schema.name().c_str(), schema.overload_name().c_str());
  const std::vector<c10::Argument>& arguments = schema.arguments();
  const size_t first = stack->size() - arguments.size();
  const FallbackCause* const cause = FallbackCause::take();
  const c10::OperatorHandle& served = cause != nullptr && cause->served() != nullptr ? *cause->served() : op;
  const auto given = torch::jit::last(*stack, arguments.size());
  const c10::DispatchKeySet layouts = keys & kOtherLayouts;
  heed_policy(served, cause, !layouts.empty(), given);
  const Place place = place_of_call(op, given);
  const c10::DispatchKeySet on_cpu = layouts | c10::DispatchKeySet(c10::DispatchKey::CPU);
  if (C10_UNLIKELY(!op.hasComputedKernelForDispatchKey(on_cpu.highestPriorityTypeId()))) {
    throw_no_cpu_kernel(op, given, policy_reason(op.operator_name()));
  }

  const CountedFallback counted(served, cause != nullptr ? cause->refusal() : nullptr, place.device);
  OverlappingOuts overlapping;
  size_t inputs = arguments.size();
  while (inputs > 0 && arguments[inputs - 1].is_out()) {
    --inputs;
  }
  for (size_t i = inputs; i < arguments.size(); ++i) {
    c10::IValue& out = (*stack)[first + i];
    if (out.isTensor() && out.toTensor().is_privateuseone()) {
      out = overlapping.in_place_of(out.toTensor(), given.slice(0, inputs));
    }
  }
  HostCall call(place.results, op.operator_name());
  for (size_t i = 0; i < arguments.size(); ++i) {
    move_to_cpu(call, op, arguments[i], place.device, (*stack)[first + i]);
  }
  forget_launch(place.device);  // it is this operator's, where a kernel looked at the dtypes first
  try {
    op.redispatchBoxed(on_cpu, stack);
  } catch (c10::NotImplementedError& error) {
    call.commit_despite_error();
    error.add_context(c10::str(full_name(op.operator_name()), " ran on the CPU because ", device_type_name(),
                               " has no kernel for it"));
    throw;
  } catch (c10::OutOfMemoryError&) {
    throw;  // the device's, for a result: nothing changes
  } catch (...) {
    call.commit_despite_error();
    throw;
  }
  overlapping.refuse_unresized([&](const at::Tensor& stand_in) { return call.view(stand_in); });
  // First what may raise without harm: see Note [What can fail comes first].
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    move_to_device(op, call, (*stack)[i]);
  }
  call.commit();
  overlapping.finish(*stack, schema.returns().size());
}

}  // namespace opsmith
