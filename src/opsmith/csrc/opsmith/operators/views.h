// Operators that concern a tensor's shape or storage and touch no element: views, resize_, set_, _lazy_clone
// and record_stream.
#pragma once

#include <ATen/core/Tensor.h>

namespace opsmith {

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> storage_offset);
at::Tensor view(const at::Tensor& self, at::IntArrayRef size);
at::Tensor view_as_real(const at::Tensor& self);
at::Tensor view_as_complex(const at::Tensor& self);
at::Tensor _reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride);

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format);

// aten::_resize_output_: an `out` of PyTorch's Python decompositions, resized as native kernels do.
const at::Tensor& _resize_output_(const at::Tensor& self, at::IntArrayRef size, at::Device device);

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_source_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset,
                                      at::IntArrayRef size, at::IntArrayRef stride);

// aten::_lazy_clone: a tensor that shares the memory of `self` until one of both is written.
at::Tensor _lazy_clone(const at::Tensor& self);

// aten::record_stream: the memory of `self` is not released before the work that `stream` has pending by then
// is done.
void record_stream(at::Tensor& self, at::Stream stream);

}  // namespace opsmith
