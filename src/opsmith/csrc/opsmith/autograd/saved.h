// An operator's arguments as a node of the autograd graph keeps them for the backward pass.
//
// Saved<T> holds an argument of the C++ type T beyond the call: Tensors as SavedVariable, which notices when
// they are modified in place and lets hooks move them away, what T only refers to as a copy, all else as it
// is. unpack() gives back what a parameter of that type takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <opsmith/torch_version.h>

namespace opsmith {

using NodeHandle = NodePtr<torch::autograd::Node>;

// Values that are their own copies.
template <class T>
struct Saved {
  static constexpr bool kTensors = false;
  T value;
  explicit Saved(const T& argument) : value(argument) {}
  const T& unpack(const NodeHandle&) const { return value; }
  void release() {}
};

template <>
struct Saved<at::Tensor> {
  static constexpr bool kTensors = true;
  torch::autograd::SavedVariable value;
  explicit Saved(const at::Tensor& argument, bool is_output = false) : value(argument, is_output) {}
  at::Tensor unpack(const NodeHandle& node) const { return value.unpack(node); }
  void release() { value.reset_data(); }
};

template <>
struct Saved<std::optional<at::Tensor>> {
  static constexpr bool kTensors = true;
  torch::autograd::SavedVariable value;
  explicit Saved(const std::optional<at::Tensor>& argument) : value(argument, false) {}
  std::optional<at::Tensor> unpack(const NodeHandle& node) const {
    at::Tensor tensor = value.unpack(node);
    return tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt;
  }
  void release() { value.reset_data(); }
};

struct SavedList {
  static constexpr bool kTensors = true;
  std::vector<torch::autograd::SavedVariable> values;
  std::vector<at::Tensor> unpack(const NodeHandle& node) const {
    std::vector<at::Tensor> tensors;
    tensors.reserve(values.size());
    for (const auto& value : values) {
      tensors.push_back(value.unpack(node));
    }
    return tensors;
  }
  void release() { values.clear(); }
};

template <>
struct Saved<at::TensorList> : SavedList {
  explicit Saved(at::TensorList argument) {
    for (const at::Tensor& tensor : argument) {
      values.emplace_back(tensor, false);
    }
  }
};

template <>
struct Saved<at::ITensorListRef> : SavedList {
  explicit Saved(const at::ITensorListRef& argument) {
    for (const at::Tensor& tensor : argument) {
      values.emplace_back(tensor, false);
    }
  }
};

template <>
struct Saved<c10::List<std::optional<at::Tensor>>> : SavedList {
  explicit Saved(const c10::List<std::optional<at::Tensor>>& argument) {
    for (const std::optional<at::Tensor>& tensor : argument) {
      values.emplace_back(tensor, false);
    }
  }
  c10::List<std::optional<at::Tensor>> unpack(const NodeHandle& node) const {
    c10::List<std::optional<at::Tensor>> tensors;
    for (at::Tensor& tensor : SavedList::unpack(node)) {
      tensors.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
    }
    return tensors;
  }
};

template <class T>
struct Saved<at::ArrayRef<T>> {
  static constexpr bool kTensors = false;
  std::vector<T> value;
  explicit Saved(at::ArrayRef<T> argument) : value(argument.vec()) {}
  at::ArrayRef<T> unpack(const NodeHandle&) const { return value; }
  void release() {}
};

template <class T>
struct Saved<c10::OptionalArrayRef<T>> {
  static constexpr bool kTensors = false;
  std::optional<std::vector<T>> value;
  explicit Saved(c10::OptionalArrayRef<T> argument) {
    if (argument.has_value()) {
      value = argument->vec();
    }
  }
  c10::OptionalArrayRef<T> unpack(const NodeHandle&) const {
    return value.has_value() ? c10::OptionalArrayRef<T>(*value) : std::nullopt;
  }
  void release() {}
};

template <class T>
struct Saved<std::optional<at::ArrayRef<T>>> {
  static constexpr bool kTensors = false;
  std::optional<std::vector<T>> value;
  explicit Saved(const std::optional<at::ArrayRef<T>>& argument) {
    if (argument.has_value()) {
      value = argument->vec();
    }
  }
  std::optional<at::ArrayRef<T>> unpack(const NodeHandle&) const {
    return value.has_value() ? std::optional<at::ArrayRef<T>>(*value) : std::nullopt;
  }
  void release() {}
};

template <>
struct Saved<std::string_view> {
  static constexpr bool kTensors = false;
  std::string value;
  explicit Saved(std::string_view argument) : value(argument) {}
  std::string_view unpack(const NodeHandle&) const { return value; }
  void release() {}
};

template <>
struct Saved<std::optional<std::string_view>> {
  static constexpr bool kTensors = false;
  std::optional<std::string> value;
  explicit Saved(const std::optional<std::string_view>& argument) : value(argument) {}
  std::optional<std::string_view> unpack(const NodeHandle&) const {
    return value.has_value() ? std::optional<std::string_view>(*value) : std::nullopt;
  }
  void release() {}
};

}  // namespace opsmith
