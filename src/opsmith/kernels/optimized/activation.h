// Functions that follow a product, by the names under which operators take them.
#pragma once

#include <limits>
#include <optional>
#include <string_view>

#include "simd/float_functions.h"

namespace opsmith::optimized {

// Bounds, which a product's own loop keeps, or a function of what it has stored.
struct Activation {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  void (*function)(const float* x, float* y, int64_t n, bool streamed) = nullptr;
};

constexpr const char* kActivations =
    "none, relu, relu6, hardswish, hardsigmoid, silu, sigmoid, tanh, gelu, gelu_tanh";

// None where there is none of that name.
inline std::optional<Activation> activation_named(std::string_view name) {
  Activation found;
  if (name == "relu" || name == "relu6") {
    found.low = 0.0f;
    found.high = name == "relu" ? found.high : 6.0f;
  } else if (name == "hardswish") {
    found.function = OPSMITH_BEST(hardswish_float);
  } else if (name == "hardsigmoid") {
    found.function = OPSMITH_BEST(hardsigmoid_float);
  } else if (name == "silu") {
    found.function = OPSMITH_BEST(silu_float);
  } else if (name == "sigmoid") {
    found.function = OPSMITH_BEST(sigmoid_float);
  } else if (name == "tanh") {
    found.function = OPSMITH_BEST(tanh_float);
  } else if (name == "gelu") {
    found.function = OPSMITH_BEST(gelu_erf_float);
  } else if (name == "gelu_tanh") {
    found.function = OPSMITH_BEST(gelu_tanh_float);
  } else if (name != "none") {
    return std::nullopt;
  }
  return found;
}

}  // namespace opsmith::optimized
