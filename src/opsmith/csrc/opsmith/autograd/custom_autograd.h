// Autograd around custom operators that write to their arguments, where PyTorch's not-implemented fallbacks
// look at what is returned only. Boxed kernels.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace opsmith {

// For the key ADInplaceOrView: runs the operator, then counts one more version of each Tensor that its schema
// marks as written, by which autograd notices that a saved Tensor changed.
void count_writes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// For the key Autograd of an operator that does not return what it writes to, so that no result could raise
// in backward(): runs the operator, and throws RuntimeError instead where a gradient would have to flow
// through it.
void reject_gradients(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace opsmith
