// Views, resize_ and set_. PyTorch's own implementations serve wherever they do not touch memory; those that
// grow a storage do it by device/storage.h, because PyTorch's do it with memcpy.
#include <opsmith/operators/views.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/storage.h>

#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include <algorithm>

namespace opsmith {
namespace {

// Grows the storage of `self` to `needed` bytes, for sizes and strides that are to be set next: a tensor must
// not claim memory that it could not be given.
void make_room(const at::Tensor& self, size_t needed) {
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    resize_storage(storage, needed);
  }
}

// Not by the product, which is 0 as well where it goes beyond 64 bits.
bool is_empty(at::IntArrayRef size) {
  return std::find(size.begin(), size.end(), 0) != size.end();
}

// In bytes. Of no elements none are needed, whatever the offset.
size_t needed_for(at::IntArrayRef size, at::IntArrayRef stride, size_t itemsize, int64_t offset) {
  return is_empty(size) ? 0 : at::detail::computeStorageNbytes(size, stride, itemsize, offset);
}

size_t needed_for(at::IntArrayRef size, size_t itemsize, int64_t offset) {
  return is_empty(size) ? 0 : at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
}

// Fills what is new, after `old` bytes, if PyTorch must be deterministic.
void fill_new(const at::Tensor& self, size_t old) {
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(self.storage().nbytes() > old && context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(old));
  }
}

}  // namespace

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor view_as_real(const at::Tensor& self) {
  return at::native::view_as_real(self);
}

at::Tensor view_as_complex(const at::Tensor& self) {
  return at::native::view_as_complex(self);
}

at::Tensor _reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(memory_format != at::MemoryFormat::Preserve, "resize_: unsupported memory format Preserve on ",
              self.device(), ". Name the format that the resized tensor shall have.");
  at::detail::check_size_nonnegative(size);
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    const size_t old = self.storage().nbytes();
    make_room(self, needed_for(size, self.dtype().itemsize(), self.storage_offset()));
    impl->set_sizes_contiguous(size);
    fill_new(self, old);
  }
  if (memory_format.has_value()) {
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

const at::Tensor& _resize_output_(const at::Tensor& self, at::IntArrayRef size, at::Device device) {
  const bool is_there = device.has_index() ? self.device() == device : self.device().type() == device.type();
  TORCH_CHECK(is_there, "_resize_output_: the tensor is on ", self.device(), ", and is expected on ", device);
  at::native::resize_output(self, size);
  return self;
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset,
                                      at::IntArrayRef size, at::IntArrayRef stride) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  at::Storage earlier = self.storage();
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  // An absent stride stands for contiguous; an empty one for a 0-dim tensor comes with a data pointer.
  const bool contiguous = stride.data() == nullptr;
  const size_t itemsize = self.dtype().itemsize();
  const size_t old = self.storage().nbytes();
  try {
    make_room(self, contiguous ? needed_for(size, itemsize, storage_offset)
                               : needed_for(size, stride, itemsize, storage_offset));
  } catch (...) {
    impl->set_storage_keep_dtype(std::move(earlier));
    throw;
  }
  impl->set_storage_offset(storage_offset);
  if (contiguous) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  fill_new(self, old);
  return self;
}

at::Tensor _lazy_clone(const at::Tensor& self) {
  if (!self.storage().resizable()) {
    return self.clone();  // others have its address, so it cannot be replaced when it is written
  }
  make_shareable(self.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  return at::native::_lazy_clone(self);
}

void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace opsmith
