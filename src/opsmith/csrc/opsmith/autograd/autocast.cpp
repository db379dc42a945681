// Autocast on the device: which operators run in the lower precision, which in float32 and which in the
// widest dtype of their arguments, as on PyTorch's own accelerators. All others run as they are called.
//
// PyTorch's templates would make a function of every operator; here a boxed one casts for all of a kind.
#include <opsmith/autograd/autocast.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

using Arguments = std::span<c10::IValue>;

void cast(Arguments arguments, at::ScalarType dtype) {
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = cached_cast(dtype, argument.toTensor(), kDevice);
    } else if (argument.isTensorList()) {
      argument = cached_cast(dtype, at::TensorList(argument.toTensorVector()), kDevice);
    }
  }
}

void in_lower_precision(const c10::FunctionSchema& /*schema*/, Arguments arguments) {
  cast(arguments, get_autocast_dtype(kDevice));
}

void in_float32(const c10::FunctionSchema& /*schema*/, Arguments arguments) {
  cast(arguments, at::kFloat);
}

// For operators that are told the dtype of their result: float32, unless it is given.
void to_float32(const c10::FunctionSchema& schema, Arguments arguments) {
  const auto is_cast = [](const c10::IValue& argument) {
    return argument.isTensor() && is_eligible(argument.toTensor(), kDevice);
  };
  if (std::ranges::any_of(arguments, is_cast)) {
    for (const size_t place : c10::irange(arguments.size())) {
      if (arguments[place].isNone() && schema.arguments()[place].name() == "dtype") {
        arguments[place] = at::kFloat;
      }
    }
  }
}

// PyTorch leaves optional Tensors out when it looks for the widest dtype, and casts them to it.
void in_the_widest_dtype(const c10::FunctionSchema& schema, Arguments arguments) {
  at::ScalarType widest = get_autocast_dtype(kDevice);
  for (const size_t place : c10::irange(arguments.size())) {
    if (schema.arguments()[place].type()->kind() == c10::TypeKind::TensorType) {
      widest = prioritize(widest, arguments[place].toTensor(), kDevice);
    } else if (arguments[place].isTensorList()) {
      widest = prioritize(widest, at::TensorList(arguments[place].toTensorVector()), kDevice);
    }
  }
  cast(arguments, widest);
}

// Prepares the arguments, which are the last values of the stack, and calls the operator without autocast.
template <void (*kPrepare)(const c10::FunctionSchema&, Arguments)>
void prepare_and_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const size_t count = op.schema().arguments().size();
  kPrepare(op.schema(), Arguments(*stack).last(count));
  op.callBoxed(stack);
}

at::Tensor binary_cross_entropy_banned(const at::Tensor& /*self*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the "
              "logarithm of a probability that was rounded to the lower precision is not what was meant. Use "
              "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which may be autocast.");
}

template <void (*kPrepare)(const c10::FunctionSchema&, Arguments)>
c10::KernelFunction boxed() {
  return c10::KernelFunction::makeFromBoxedFunction<&prepare_and_call<kPrepare>>();
}

c10::KernelFunction kernel_for(opsmith::Precision precision) {
  switch (precision) {
    case opsmith::Precision::kLower:
      return boxed<&in_lower_precision>();
    case opsmith::Precision::kFloat32:
      return boxed<&in_float32>();
    case opsmith::Precision::kFloat32Result:
      return boxed<&to_float32>();
    case opsmith::Precision::kWidest:
      return boxed<&in_the_widest_dtype>();
    case opsmith::Precision::kUnchanged:
      break;
  }
  return c10::KernelFunction::makeFallthrough();
}

// The registrations, which last as long as the process.
struct Registered {
  torch::Library fallthrough{torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__,
                             __LINE__};
  torch::Library aten{torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__,
                      __LINE__};
  std::vector<c10::RegistrationHandleRAII> boxed;
  std::vector<std::string> dtypes;
};

Registered& registered() {
  static Registered& kept = *new Registered;
  return kept;
}

std::vector<std::string> autocast_dtypes() {
  return registered().dtypes;
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("autocast_dtypes() -> str[]", &autocast_dtypes);
}

}  // namespace
}  // namespace at::autocast

namespace opsmith {

void set_autocast(std::initializer_list<c10::ScalarType> dtypes, std::initializer_list<AutocastRule> rules) {
  using namespace at;  // PyTorch's macros are made for it
  using namespace at::autocast;
  auto& [fallthrough, m, boxed, names] = registered();
  for (const c10::ScalarType dtype : dtypes) {
    names.emplace_back(c10::toString(dtype));
  }
  set_autocast_dtype(kDevice, *dtypes.begin());
  fallthrough.fallback(torch::CppFunction::makeFallthrough());

  const auto add = [&](const std::string& name, Precision precision) {
    boxed.push_back(c10::Dispatcher::singleton().registerImpl(
        torch::jit::parseName(name), c10::DispatchKey::AutocastPrivateUse1, kernel_for(precision),
        std::nullopt, nullptr, "registered at " __FILE__));
  };
  for (const auto& [name, precision] : rules) {
    add(name, precision);
  }
  const auto is_pytorchs = [&](const std::string& name) {
    return std::ranges::none_of(rules, [&](const AutocastRule& rule) { return name == rule.name; });
  };
  // `listed` are the arguments of PyTorch's macros: "relu", or "pow, Tensor_Scalar".
  const auto add_listed = [&](Precision precision, std::initializer_list<std::string> listed) {
    for (std::string name : listed) {
      if (const size_t comma = name.find(", "); comma != std::string::npos) {
        name.replace(comma, 2, ".");
      }
      if (name = "aten::" + name; is_pytorchs(name)) {
        add(name, precision);
      }
    }
  };
#define OPSMITH_NAME(...) #__VA_ARGS__,
  add_listed(Precision::kLower, {AT_FORALL_LOWER_PRECISION_FP(OPSMITH_NAME)});
  add_listed(Precision::kFloat32, {AT_FORALL_FP32(OPSMITH_NAME)});
  add_listed(Precision::kFloat32Result, {AT_FORALL_FP32_SET_OPT_DTYPE(OPSMITH_NAME)});
  add_listed(Precision::kWidest, {AT_FORALL_PROMOTE(OPSMITH_NAME)});
#define OPSMITH_WITH_DTYPE(FUNCTION, NAME, ...)                                      \
  if (is_pytorchs("aten::" NAME)) {                                                  \
    KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(FUNCTION, NAME, __VA_ARGS__) \
  }
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(OPSMITH_WITH_DTYPE)
  if (is_pytorchs("aten::binary_cross_entropy")) {
    m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
  }
}

}  // namespace opsmith
