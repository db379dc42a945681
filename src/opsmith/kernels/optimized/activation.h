// Functions that follow a product, by the names under which operators take them.
#pragma once

#include <limits>
#include <optional>
#include <string_view>

#include "by_dtype.h"
#include "float_functions.h"

namespace opsmith::optimized {

// Bounds, which a product's own loop may keep, and a function of what it has stored.
template <class T>
struct Activation {
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  float low = -kInfinity;
  float high = kInfinity;
  void (*function)(const T* x, T* y, int64_t n, bool streamed) = nullptr;

  bool is_none() const { return low == -kInfinity && function == nullptr; }

  // y = activation(y + other), where there is one.
  void apply(const T* other, T* y, int64_t n) const {
    if (other != nullptr) {
      OPSMITH_BEST_OF(T, add)(y, other, 1.0f, y, n, false);
    }
    if (function != nullptr) {
      function(y, y, n, false);
    } else if (low != -kInfinity) {
      OPSMITH_BEST_OF(T, bound)(y, low, high, y, n, false);
    }
  }
};

constexpr const char* kActivations =
    "none, relu, relu6, hardswish, hardsigmoid, silu, sigmoid, tanh, gelu, gelu_tanh";

// None where there is none of that name.
template <class T>
std::optional<Activation<T>> activation_named(std::string_view name) {
  Activation<T> found;
  if (name == "relu" || name == "relu6") {
    found.low = 0.0f;
    found.high = name == "relu" ? found.high : 6.0f;
  } else if (name == "hardswish") {
    found.function = OPSMITH_BEST_OF(T, hardswish);
  } else if (name == "hardsigmoid") {
    found.function = OPSMITH_BEST_OF(T, hardsigmoid);
  } else if (name == "silu") {
    found.function = OPSMITH_BEST_OF(T, silu);
  } else if (name == "sigmoid") {
    found.function = OPSMITH_BEST_OF(T, sigmoid);
  } else if (name == "tanh") {
    found.function = OPSMITH_BEST_OF(T, tanh);
  } else if (name == "gelu") {
    found.function = OPSMITH_BEST_OF(T, gelu_erf);
  } else if (name == "gelu_tanh") {
    found.function = OPSMITH_BEST_OF(T, gelu_tanh);
  } else if (name != "none") {
    return std::nullopt;
  }
  return found;
}

}  // namespace opsmith::optimized
