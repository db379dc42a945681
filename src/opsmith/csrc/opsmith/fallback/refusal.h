// Refusing an operator call: the exceptions, in the words that people read.
//
// Each names the operator, the device, the tensors of the call, the reason and what to do about it.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>

namespace opsmith {

// "aten::add.out"
std::string full_name(const c10::OperatorName& name);

// The same of such a name.
c10::OperatorName parsed_name(std::string_view full_name);

// As the plan and the manifests call operators: "add.out", without "aten::".
std::string plan_name(const c10::OperatorName& name);

// `what` of the operator, "argument" or "result", is an mkldnn tensor. Throws NotImplementedError.
[[noreturn]] void throw_mkldnn(const c10::OperatorName& name, const char* what);

// For a result that holds tensors in something else than a list, which the fallback does not look into.
[[noreturn]] void throw_result_stays_on_cpu(const c10::OperatorName& name, const c10::Type& type);

// The arguments `values` of the call are on `device` and on `other`. Throws RuntimeError.
[[noreturn]] void throw_mixed_devices(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                                      c10::Device device, c10::Device other);

// "<operator> is not available on <device>: <reason>. It was called with <tensors>.", how to write a kernel,
// and what else to do. Throws NotImplementedError.
[[noreturn]] void throw_refused(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                                const std::string& reason, const std::string& otherwise);

// There is no CPU kernel to fall back on. `planned` is the reason that the plan gives; it may be empty.
// Throws NotImplementedError.
[[noreturn]] void throw_no_cpu_kernel(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values,
                                      const std::string& planned);

// Raises RuntimeError where the sizes of nested tensors, the int64 Tensors after the first one, are not in
// the host's memory, which PyTorch's kernels take for granted.
void check_nested_sizes(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace opsmith
