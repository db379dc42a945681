// The parts of autograd.h that need not be instantiated for each operator.
#include <opsmith/autograd/autograd.h>

#include <torch/csrc/autograd/functions/basic_ops.h>

namespace opsmith::detail {

void reject_forward_gradient(const char* operator_name, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !tensor.defined() || !tensor._fw_grad(0).defined(), "Trying to use forward AD with ", operator_name,
      ", which does not support it: it is differentiated by a backward kernel of the device.");
}

void throw_out_requires_grad(const char* operator_name) {
  TORCH_CHECK(false, operator_name,
              "(): functions with out=... arguments don't support automatic differentiation, but one of the "
              "arguments requires grad.");
}

void record_result(const NodeHandle& node, const char* operator_name, const at::Tensor& result,
                   const std::vector<at::Tensor>& operands) {
  if (!result.defined() || !torch::autograd::isDifferentiableType(result.scalar_type())) {
    node->add_input_metadata(torch::autograd::Node::undefined_input());
    return;
  }
  for (const at::Tensor& operand : operands) {
    TORCH_CHECK(!result.is_same(operand), "the kernel of ", operator_name,
                " returned one of its arguments; a differentiable result must be a new tensor\n"
                "  remedy: return argument.clone()");
  }
  torch::autograd::set_history(result, node);
}

variable_list not_twice(const char* message, variable_list&& gradients) {
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      gradient = gradient.detach().set_requires_grad(true);
    }
  }
  const auto error =
      make_node<torch::autograd::DelayedError>(message, static_cast<int64_t>(gradients.size()));
  return (*error)(std::move(gradients));
}

void put_gradient(variable_list& gradients, size_t& place, size_t count, const char*, at::Tensor&& gradient) {
  TORCH_INTERNAL_ASSERT(count == 1);
  gradients[place++] = std::move(gradient);
}

void put_gradient(variable_list& gradients, size_t& place, size_t count, const char* name,
                  std::vector<at::Tensor>&& gradient) {
  TORCH_CHECK(gradient.empty() || gradient.size() == count, name, ": the backward kernel returned ",
              gradient.size(), " gradients for a list of ", count, " tensors");
  for (size_t index = 0; index < gradient.size(); ++index) {
    gradients[place + index] = std::move(gradient[index]);
  }
  place += count;
}

}  // namespace opsmith::detail
