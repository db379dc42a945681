// Composite operators as one call of the fallback, in the place of the operators that PyTorch decomposes them
// into.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace opsmith {

// Boxed kernels for an operator with a composite kernel at `kComposite`: fallback(), where one call on the
// CPU is all that happens; else PyTorch's decomposition. It decomposes where somebody has to see the parts
// (autocast, a transform or a mode of functorch, of Python or of a tracer, a subclass of Tensor), where
// tensors are not all the device's strided ones, and where the result turns out to be a view of an argument.
//
// With CompositeImplicitAutograd to be registered at AutogradPrivateUse1 too, because a kernel at PrivateUse1
// alone silences the composite above it and, with it, the gradient. It decomposes where a gradient is needed,
// too.
//
// intercept_without_dropout() also decomposes where an argument asks for dropout, whose random numbers are to
// be the device's.
template <c10::DispatchKey kComposite>
void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
template <c10::DispatchKey kComposite>
void intercept_without_dropout(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                               torch::jit::Stack* stack);

}  // namespace opsmith
