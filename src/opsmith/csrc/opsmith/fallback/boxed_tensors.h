// The Tensors of boxed arguments: which lists have them, a visit to each, and others in their place.
#pragma once

#include <algorithm>

#include <ATen/core/function_schema.h>
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

// Calls visit(tensor) with each defined Tensor in `value` until it returns false; whether it never did.
template <class Visit>
bool all_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    return !value.toTensor().defined() || visit(value.toTensor());
  }
  if (is_tensor_list(value)) {
    const auto elements = value.toListRef();
    return std::all_of(elements.begin(), elements.end(),
                       [&](const c10::IValue& element) { return all_tensors(element, visit); });
  }
  return true;
}

// Calls visit(tensor) with each defined Tensor in `value`.
template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  all_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return true;
  });
}

// Calls visit(argument, tensor) with each defined Tensor among `values`, the arguments of a boxed call.
template <class Visit>
void for_each_tensor(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values,
                     const Visit& visit) {
  for (size_t i = 0; i < values.size(); ++i) {
    for_each_tensor(values[i], [&](const at::Tensor& tensor) { visit(schema.arguments()[i], tensor); });
  }
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
