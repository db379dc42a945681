// Uninitialised tensors on the device: the two factory operators, and direct versions for generated code,
// which knows its shapes and dtypes and needs no dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::empty.memory_format
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format);

// aten::empty_strided
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory);

// aten::_efficientzerotensor: zeros without memory, which autograd makes for gradients that are known to be
// zero.
at::Tensor _efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout> layout, std::optional<at::Device> device,
                                std::optional<bool> pin_memory);

// Throws NotImplementedError for another layout than strided, RuntimeError for pinned memory on the device.
void reject_options(const char* operator_name, std::optional<at::Layout> layout,
                    std::optional<bool> pin_memory);

// empty() and empty_strided() without a check, straight to the allocator. `device` must be of this device
// type; index -1 is the current device.
at::Tensor empty_fast(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);
at::Tensor empty_strided_fast(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                              c10::Device device);

// `bytes` of memory on `device`, from the device's allocator.
at::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes);

}  // namespace opsmith
