// Pushes arguments of common types onto the stack of a boxed call. See fallback.h.
#include <opsmith/fallback/fallback.h>

namespace opsmith::detail {

c10::OperatorHandle find_operator(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

void push(torch::jit::Stack& stack, const at::Tensor& tensor) {
  stack.emplace_back(tensor);
}
void push(torch::jit::Stack& stack, const std::optional<at::Tensor>& tensor) {
  stack.emplace_back(tensor);
}
void push(torch::jit::Stack& stack, at::TensorList tensors) {
  stack.emplace_back(tensors);
}
void push(torch::jit::Stack& stack, const at::ITensorListRef& tensors) {
  stack.emplace_back(tensors);
}
void push(torch::jit::Stack& stack, const c10::List<std::optional<at::Tensor>>& tensors) {
  stack.emplace_back(tensors);
}
void push(torch::jit::Stack& stack, const at::Scalar& scalar) {
  stack.emplace_back(scalar);
}
void push(torch::jit::Stack& stack, const std::optional<at::Scalar>& scalar) {
  stack.emplace_back(scalar);
}
void push(torch::jit::Stack& stack, at::IntArrayRef numbers) {
  stack.emplace_back(numbers);
}
void push(torch::jit::Stack& stack, at::OptionalIntArrayRef numbers) {
  stack.emplace_back(numbers);
}
void push(torch::jit::Stack& stack, c10::SymIntArrayRef numbers) {
  stack.emplace_back(numbers);
}
void push(torch::jit::Stack& stack, int64_t number) {
  stack.emplace_back(number);
}
void push(torch::jit::Stack& stack, double number) {
  stack.emplace_back(number);
}
void push(torch::jit::Stack& stack, bool truth) {
  stack.emplace_back(truth);
}
void push(torch::jit::Stack& stack, std::optional<int64_t> number) {
  stack.emplace_back(number);
}
void push(torch::jit::Stack& stack, std::optional<at::ScalarType> dtype) {
  stack.emplace_back(dtype);
}

}  // namespace opsmith::detail
