// The Tensors of a boxed argument replaced by others that stand for them.
#pragma once

#include <ATen/core/ivalue.h>

namespace opsmith {

// `value` with `view(tensor)` in the place of each of its Tensors; anything else comes back unchanged.
template <class View>
c10::IValue with_views(const c10::IValue& value, const View& view) {
  if (value.isTensor()) {
    return view(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> views;
    for (const c10::IValue& tensor : value.toListRef()) {
      views.push_back(view(tensor.toTensor()));
    }
    return views;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> views;
    for (const c10::IValue& tensor : value.toListRef()) {
      views.push_back(tensor.isTensor() ? std::optional<at::Tensor>(view(tensor.toTensor())) : std::nullopt);
    }
    return views;
  }
  return value;
}

}  // namespace opsmith
