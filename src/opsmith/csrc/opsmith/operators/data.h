// The check of `tensor.data = other`: whether a tensor may take over the memory of another and stay itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::_has_compatible_shallow_copy_type, which set_data and nn.Module.to ask. PyTorch's own knows the dense
// tensors of its own devices only, so that a module that moves here would get new parameters: tied ones would
// come apart, and optimizers would hold the old ones. Serves below autograd and in its place.
bool _has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);

}  // namespace opsmith
