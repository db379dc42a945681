#include <opsmith/generated/lazy_operands.h>

#include <opsmith/fallback/written_argument.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

namespace opsmith {
namespace {

bool holds_lazy(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && is_lazy(value.toTensor());
}

}  // namespace

bool has_lazy_operands(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), holds_lazy);
}

void with_resolved_operands(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // the caller's, and the one in its place
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (!holds_lazy(value)) {
      continue;
    }
    const at::Tensor tensor = value.toTensor();
    const at::Tensor resolved = tensor._is_zerotensor() ? at::zeros(tensor.sizes(), tensor.options())
                                                        : tensor.resolve_conj().resolve_neg();
    if (is_written(arguments[i])) {
      written.emplace_back(tensor, resolved);
    }
    value = resolved;
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
  for (const auto& [tensor, resolved] : written) {
    if (tensor.sizes() != resolved.sizes()) {
      tensor.resize_(resolved.sizes());
    }
    tensor.copy_(resolved);
    for (size_t i = first; i < stack->size(); ++i) {
      c10::IValue& result = (*stack)[i];
      if (result.isTensor() && result.toTensor().is_same(resolved)) {
        result = tensor;
      }
    }
  }
}

}  // namespace opsmith
