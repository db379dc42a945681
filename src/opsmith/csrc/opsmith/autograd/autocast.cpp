// Autocast on the device: which operators run in the lower precision, which in float32 and which in the
// widest dtype of their arguments, as on PyTorch's own accelerators. All others run as they are called.
//
// PyTorch's templates would make a function of every operator; here a boxed one casts for all of a kind.
#include <span>
#include <string>

#include <ATen/autocast_mode.h>
#include <torch/library.h>

// PyTorch's macros are made for this namespace.
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
  if (is_eligible(arguments[0].toTensor(), kDevice)) {
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

// `names` are the arguments of PyTorch's macros: "relu", or "pow, Tensor_Scalar".
template <void (*kPrepare)(const c10::FunctionSchema&, Arguments)>
void register_for(torch::Library& m, std::initializer_list<std::string> names) {
  for (std::string name : names) {
    if (const size_t comma = name.find(", "); comma != std::string::npos) {
      name.replace(comma, 2, ".");
    }
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&prepare_and_call<kPrepare>>());
  }
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define OPSMITH_NAME(...) #__VA_ARGS__,
  register_for<&in_lower_precision>(m, {AT_FORALL_LOWER_PRECISION_FP(OPSMITH_NAME)});
  register_for<&in_float32>(m, {AT_FORALL_FP32(OPSMITH_NAME)});
  register_for<&to_float32>(m, {AT_FORALL_FP32_SET_OPT_DTYPE(OPSMITH_NAME)});
  register_for<&in_the_widest_dtype>(m, {AT_FORALL_PROMOTE(OPSMITH_NAME)});
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
}

}  // namespace
}  // namespace at::autocast
