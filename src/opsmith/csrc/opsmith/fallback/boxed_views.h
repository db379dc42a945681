// The Tensors of a boxed argument: which lists have them, and others in their place.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace opsmith {

// Whether `value` is a list of optional Tensors, as indices are. IValue::isOptionalTensorList() compares
// types by their addresses, which those of TorchScript's lists do not share.
inline bool is_optional_tensor_list(const c10::IValue& value) {
  return value.isList() && *value.toList().elementType() == *c10::OptionalType::ofTensor();
}

// Whether it is a list of Tensors, optional ones or not.
inline bool is_tensor_list(const c10::IValue& value) {
  return value.isTensorList() || is_optional_tensor_list(value);
}

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
  if (is_optional_tensor_list(value)) {
    c10::List<std::optional<at::Tensor>> views;
    for (const c10::IValue& tensor : value.toListRef()) {
      views.push_back(tensor.isTensor() ? std::optional<at::Tensor>(view(tensor.toTensor())) : std::nullopt);
    }
    return views;
  }
  return value;
}

}  // namespace opsmith
