// Copies of tensors and bytes: host to device, device to host, within a device and between devices.
#pragma once

#include <ATen/core/Tensor.h>

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

// Copies bytes and waits for them. Devices are ordinals or OPSMITH_HOST, of which at most one may be; the
// copy is ordered on the current stream of the device that takes part (the source's, if both do).
void copy_bytes(void* destination, int destination_device, const void* source, int source_device,
                size_t bytes);

// The same without waiting, on a stream that is captured; the host's memory is pinned.
void record_copy(void* destination, int destination_device, const void* source, int source_device,
                 size_t bytes);

}  // namespace opsmith
