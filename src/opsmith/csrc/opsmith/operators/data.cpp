// Which tensors take over the memory of which. See data.h.
#include <opsmith/operators/data.h>

#include <ATen/ops/_has_compatible_shallow_copy_type_native.h>

namespace opsmith {
namespace {

// Whether a tensor is described by sizes, strides and a storage, here or on a device of PyTorch's own: a
// plain TensorImpl, which can become any other one. Meta tensors are such, too, but have no memory: there
// PyTorch makes new parameters.
bool is_dense(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  const c10::DispatchKeySet backends({c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit,
                                      c10::BackendComponent::MPSBit, c10::BackendComponent::HIPBit,
                                      c10::BackendComponent::XPUBit, c10::BackendComponent::HPUBit,
                                      c10::BackendComponent::MTIABit, c10::BackendComponent::PrivateUse1Bit});
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(backends);
}

// Whether a Python class dispatches the tensor's operators, as FakeTensor does: it keeps the device itself,
// and would not learn of another one.
bool is_python_class(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Python);
}

}  // namespace

bool _has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const bool is_plain = !is_python_class(self) && !is_python_class(from);
  return (is_plain && is_dense(self) && is_dense(from)) ||
         at::native::_has_compatible_shallow_copy_type(self, from);
}

}  // namespace opsmith
