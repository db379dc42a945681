// Sparse, compressed sparse (CSR and its kin) and nested tensors, which are made of strided ones: their
// parts.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace opsmith {

inline bool is_made_of_parts(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kMadeOfParts(
      {c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});
  return tensor.key_set().has_any(kMadeOfParts);
}

// A tensor like `tensor`, for which is_made_of_parts(), with the counterparts on `device` that `counterpart`
// gives for its parts.
at::Tensor with_parts(const at::Tensor& tensor, c10::Device device,
                      c10::function_ref<at::Tensor(const at::Tensor& part)> counterpart);

// Gives `tensor` the parts and the sizes of `like`, which is on the same device and of the same layout. Of a
// nested tensor, whose sizes nothing changes, only the elements can have been written.
void take_parts(const at::Tensor& tensor, const at::Tensor& like);

}  // namespace opsmith
