// Autograd of custom operators that write to their arguments. See custom_autograd.h.
#include <opsmith/autograd/custom_autograd.h>
#include <opsmith/fallback/boxed_views.h>
#include <opsmith/fallback/written_argument.h>

#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace opsmith {
namespace {

// Calls visit(argument, tensor) for each defined Tensor of a boxed call.
template <class Visit>
void for_each_tensor(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, const Visit& visit) {
  const c10::ArrayRef<c10::IValue> values = torch::jit::last(stack, schema.arguments().size());
  for (size_t index = 0; index < values.size(); ++index) {
    const auto look = [&](const c10::IValue& value) {
      if (value.isTensor() && value.toTensor().defined()) {
        visit(schema.arguments()[index], value.toTensor());
      }
    };
    if (is_tensor_list(values[index])) {
      for (const c10::IValue& element : values[index].toListRef()) {
        look(element);
      }
    } else {
      look(values[index]);
    }
  }
}

}  // namespace

void count_writes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  std::vector<at::Tensor> written;
  for_each_tensor(op.schema(), *stack, [&](const c10::Argument& argument, const at::Tensor& tensor) {
    if (is_written(argument)) {
      written.push_back(tensor);
    }
  });
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const at::Tensor& tensor : written) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void reject_gradients(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (c10::GradMode::is_enabled()) {
    for_each_tensor(op.schema(), *stack, [&](const c10::Argument& argument, const at::Tensor& tensor) {
      TORCH_CHECK(!tensor.requires_grad(), "derivative for ", op.schema().name(),
                  " is not implemented, and its argument ", argument.name(),
                  " requires a gradient, which what it writes would lack. Call it under torch.no_grad(), or "
                  "with ",
                  argument.name(), ".detach().");
    });
  }
  const at::AutoDispatchBelowAutograd below;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

}  // namespace opsmith
