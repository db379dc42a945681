// Functions that follow a product, by the names under which operators take them.
#pragma once

#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "simd/float_functions.h"

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
    constexpr bool kIsFloat = std::is_same_v<T, float>;
    if (other != nullptr) {
      if constexpr (kIsFloat) {
        OPSMITH_BEST(add_float)(y, other, 1.0f, y, n, false);
      } else {
        OPSMITH_BEST(add_bfloat16)(y, other, 1.0f, y, n, false);
      }
    }
    if (function != nullptr) {
      function(y, y, n, false);
    } else if (low != -kInfinity) {
      if constexpr (kIsFloat) {
        OPSMITH_BEST(bound_float)(y, low, high, y, n, false);
      } else {
        OPSMITH_BEST(bound_bfloat16)(y, low, high, y, n, false);
      }
    }
  }
};

constexpr const char* kActivations =
    "none, relu, relu6, hardswish, hardsigmoid, silu, sigmoid, tanh, gelu, gelu_tanh";

#define OPSMITH_ACTIVATION(name)                    \
  if constexpr (std::is_same_v<T, float>) {         \
    found.function = OPSMITH_BEST(name##_float);    \
  } else {                                          \
    found.function = OPSMITH_BEST(name##_bfloat16); \
  }

// None where there is none of that name.
template <class T>
std::optional<Activation<T>> activation_named(std::string_view name) {
  Activation<T> found;
  if (name == "relu" || name == "relu6") {
    found.low = 0.0f;
    found.high = name == "relu" ? found.high : 6.0f;
  } else if (name == "hardswish") {
    OPSMITH_ACTIVATION(hardswish)
  } else if (name == "hardsigmoid") {
    OPSMITH_ACTIVATION(hardsigmoid)
  } else if (name == "silu") {
    OPSMITH_ACTIVATION(silu)
  } else if (name == "sigmoid") {
    OPSMITH_ACTIVATION(sigmoid)
  } else if (name == "tanh") {
    OPSMITH_ACTIVATION(tanh)
  } else if (name == "gelu") {
    OPSMITH_ACTIVATION(gelu_erf)
  } else if (name == "gelu_tanh") {
    OPSMITH_ACTIVATION(gelu_tanh)
  } else if (name != "none") {
    return std::nullopt;
  }
  return found;
}
#undef OPSMITH_ACTIVATION

}  // namespace opsmith::optimized
