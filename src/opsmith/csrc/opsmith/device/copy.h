// Copies of tensors: host to device, device to host, within a device and between devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace opsmith {

// Whether both tensors are one run of bytes with the elements in the same order: then the driver copies them.
bool is_same_run(const at::Tensor& a, const at::Tensor& b);

// aten::_copy_from: copies `self` into `destination`, whatever their devices (one is this device type's),
// dtypes, strides, conj and neg flags; `self` broadcasts. With `non_blocking` a copy from or to pinned memory
// of the same dtype and layout only queues; the pinned memory is kept until it is done. Returns
// `destination`.
at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking);

// aten::_copy_from_and_resize: the same after `destination` got the sizes of `self`.
at::Tensor _copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination);

// aten::_local_scalar_dense: what item() returns.
at::Scalar _local_scalar_dense(const at::Tensor& self);

// Makes `copy`, within a device without a host window, which the host computes on its way there and back, and
// accounts for it. Without an observer it is just made.
using CopyObserver = void (*)(c10::DeviceIndex device, c10::function_ref<void()> copy);
void observe_copies(CopyObserver observer);

}  // namespace opsmith
