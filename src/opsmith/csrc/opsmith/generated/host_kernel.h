// Kernels for Tensors in host memory, called for a device's.
#pragma once

#include <opsmith/generated/runtime_kernel.h>

#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>

namespace opsmith {

// `kernel` for Tensors of the current device, where it takes CPU Tensors alone: it is given views of the same
// bytes behind the driver's host window or, without one, copies. It is of the operator `op`, which writes to
// its arguments and returns nothing else.
std::shared_ptr<const RuntimeKernel> on_host_views(const c10::OperatorHandle& op,
                                                   std::shared_ptr<const RuntimeKernel> kernel);

}  // namespace opsmith
