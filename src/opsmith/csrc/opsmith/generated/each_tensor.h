// The Tensors that an operator's argument holds, whatever its C++ type.
#pragma once

#include <optional>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

namespace opsmith {

// Calls `visit` with each defined Tensor of an argument, whatever holds it.
template <class Visit>
inline void each_tensor(const at::TensorBase& tensor, const Visit& visit) {
  if (tensor.defined()) {
    visit(tensor);
  }
}
template <class Visit>
inline void each_tensor(const std::optional<at::Tensor>& tensor, const Visit& visit) {
  if (tensor.has_value() && tensor->defined()) {
    visit(*tensor);
  }
}
template <class Visit>
inline void each_tensor(at::TensorList tensors, const Visit& visit) {
  for (const at::Tensor& tensor : tensors) {
    each_tensor(tensor, visit);
  }
}
template <class Visit>
inline void each_tensor(const at::ITensorListRef& tensors, const Visit& visit) {
  for (const at::Tensor& tensor : tensors) {
    each_tensor(tensor, visit);
  }
}
template <class Visit>
inline void each_tensor(const c10::List<std::optional<at::Tensor>>& tensors, const Visit& visit) {
  for (const std::optional<at::Tensor>& tensor : tensors) {
    each_tensor(tensor, visit);
  }
}

}  // namespace opsmith
