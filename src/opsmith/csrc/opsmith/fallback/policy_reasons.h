// The reasons that the plan gives for denying the fallback to an operator, or for having no kernel for it.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace opsmith {

// Sets that of `operator_name` ("add.out", or with its namespace). Called by generated code when the library
// is loaded.
void set_policy_reason(const char* operator_name, const char* reason);

// Empty: the plan gives none.
std::string policy_reason(const c10::OperatorName& name);

// Does nothing unless the plan denies the fallback to the operator, whose kernel has the CPU compute. Throws
// NotImplementedError.
void refuse_as_described(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values);

}  // namespace opsmith
