// Autograd of custom operators that write to their arguments. See custom_autograd.h.
#include <opsmith/autograd/custom_autograd.h>
#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/written_argument.h>

#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace opsmith {
namespace {

c10::ArrayRef<c10::IValue> arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return torch::jit::last(stack, op.schema().arguments().size());
}

}  // namespace

void count_writes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  std::vector<at::Tensor> written;
  const auto note = [&](const c10::Argument& argument, const at::Tensor& tensor) {
    if (is_written(argument)) {
      written.push_back(tensor);
    }
  };
  for_each_tensor(op.schema(), arguments_of(op, *stack), note);
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
    const auto reject = [&](const c10::Argument& argument, const at::Tensor& tensor) {
      TORCH_CHECK(!tensor.requires_grad(), "derivative for ", op.schema().name(),
                  " is not implemented, and its argument ", argument.name(),
                  " requires a gradient, which what it writes would lack. Call it under torch.no_grad(), or "
                  "with ",
                  argument.name(), ".detach().");
    };
    for_each_tensor(op.schema(), arguments_of(op, *stack), reject);
  }
  const at::AutoDispatchBelowAutograd below;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

}  // namespace opsmith
