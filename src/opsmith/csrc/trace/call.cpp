// See call.h.
#include "call.h"

#include <ATen/core/Tensor.h>

namespace opsmith::trace {

bool Log::is_passed_on(const torch::jit::Stack* stack) const {
  return current != nullptr && current->stack() == stack;
}

How Log::how(const char* name, const torch::jit::Stack* stack) {
  if (announced_ == name) {
    announced_ = nullptr;
    // The dispatcher announces a boxed call with the very values that it then passes on. They are asked for
    // only where tensors are described: boxing a tensor that Python owns takes the GIL.
    const bool is_boxed = announced_inputs_ != nullptr && announced_inputs_ == stack->data();
    return is_boxed || is_passed_on(stack) ? How::kCallBoxed : How::kCall;
  }
  if (current != nullptr && current->name() == name) {
    return How::kRedispatch;
  }
  // Operators that the dispatcher does not announce: see ATen/core/dispatch/ObservedOperators.h.
  return is_passed_on(stack) ? How::kCallBoxed : How::kCall;
}

namespace {

void note_device(Record& record, const torch::jit::Stack& stack, size_t count) {
  const auto note = [&](const c10::Device& device) {
    record.device_type = static_cast<int8_t>(device.type());
    record.device_index = device.index();
  };
  for (const c10::IValue& value : torch::jit::last(stack, count)) {
    if (value.isTensor()) {
      if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) {
        return note(tensor.unsafeGetTensorImpl()->device());
      }
    } else if (value.isDevice()) {
      return note(value.toDevice());
    } else if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        return note(element.toTensor().device());
      }
    }
  }
}

}  // namespace

Call::Call(Log& log, const Recorded& kernel, torch::jit::Stack* stack)
    : log_(log), outer_(log.current), name_(kernel.name), stack_(stack) {
  const How how = log.how(name_, stack);
  log.current = this;
  record_ = log.begin(how, kernel.number);
  log.descend();
  if (C10_UNLIKELY(record_ == nullptr)) {
    return;
  }
  record_->key = static_cast<uint16_t>(kernel.key);
  record_->kind = kernel.kind;
  note_device(*record_, *stack, kernel.arguments);
  if (log.session().options().shapes) {
    log.describe(*record_, *stack, kernel.arguments);
  }
}

}  // namespace opsmith::trace
