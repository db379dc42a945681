// See parts.h.
#include <opsmith/fallback/parts.h>

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace opsmith {
namespace {

using Counterpart = c10::function_ref<at::Tensor(const at::Tensor&)>;

c10::DispatchKeySet key_on(c10::Device device, c10::DispatchKey on_cpu, c10::DispatchKey on_device) {
  return c10::DispatchKeySet(device.is_cpu() ? on_cpu : on_device);
}

// The sizes and other metadata of what comes from .data may be changed here, though not by its owner.
class MayChange {
 public:
  explicit MayChange(c10::TensorImpl* impl) : impl_(impl), allowed_(impl->allow_tensor_metadata_change()) {
    impl->set_allow_tensor_metadata_change(true);
  }
  ~MayChange() { impl_->set_allow_tensor_metadata_change(allowed_); }
  MayChange(const MayChange&) = delete;
  MayChange& operator=(const MayChange&) = delete;

 private:
  c10::TensorImpl* impl_;
  bool allowed_;
};

at::SparseTensorImpl* sparse_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

void set_parts(at::SparseTensorImpl* impl, const at::SparseTensorImpl* like, const at::Tensor& indices,
               const at::Tensor& values) {
  impl->raw_resize_(like->sparse_dim(), like->dense_dim(), like->sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(like->coalesced());
}

at::Tensor sparse(const at::Tensor& tensor, c10::Device device, Counterpart counterpart) {
  const at::SparseTensorImpl* const impl = sparse_impl(tensor);
  const c10::DeviceGuard guard(device);  // the constructor makes the tensor on the current device
  at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(
      key_on(device, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1), impl->dtype());
  set_parts(sparse_impl(made), impl, counterpart(impl->indices()), counterpart(impl->values()));
  return made;
}

at::SparseCsrTensorImpl* compressed_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor compressed(const at::Tensor& tensor, c10::Device device, Counterpart counterpart) {
  const at::SparseCsrTensorImpl* const impl = compressed_impl(tensor);
  at::Tensor made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      key_on(device, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1), device,
      tensor.layout(), impl->dtype());
  compressed_impl(made)->set_member_tensors(counterpart(impl->compressed_indices()),
                                            counterpart(impl->plain_indices()), counterpart(impl->values()),
                                            impl->sizes());
  return made;
}

at::Tensor nested(const at::Tensor& tensor, Counterpart counterpart) {
  const auto* const impl = static_cast<at::native::NestedTensorImpl*>(tensor.unsafeGetTensorImpl());
  // Sizes, strides and offsets are on the CPU, whatever the device.
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      counterpart(impl->get_unsafe_storage_as_tensor()), impl->get_nested_sizes(), impl->get_nested_strides(),
      impl->get_storage_offsets());
}

}  // namespace

at::Tensor with_parts(const at::Tensor& tensor, c10::Device device, Counterpart counterpart) {
  if (tensor.is_nested()) {
    return nested(tensor, counterpart);
  }
  return tensor.is_sparse() ? sparse(tensor, device, counterpart) : compressed(tensor, device, counterpart);
}

void take_parts(const at::Tensor& tensor, const at::Tensor& like) {
  const MayChange may_change(tensor.unsafeGetTensorImpl());
  if (tensor.is_sparse()) {
    const at::SparseTensorImpl* const from = sparse_impl(like);
    set_parts(sparse_impl(tensor), from, from->indices(), from->values());
  } else if (!tensor.is_nested()) {
    const at::SparseCsrTensorImpl* const from = compressed_impl(like);
    compressed_impl(tensor)->set_member_tensors(from->compressed_indices(), from->plain_indices(),
                                                from->values(), from->sizes());
  }
}

}  // namespace opsmith
