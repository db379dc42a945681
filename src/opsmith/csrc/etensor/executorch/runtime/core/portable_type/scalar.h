// Scalar: a number of Python's, which is a bool, an int or a float.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include <executorch/runtime/core/portable_type/scalar_type.h>
#include <executorch/runtime/platform/assert.h>

namespace executorch::runtime::etensor {

class Scalar {
 public:
  Scalar() : value_(int64_t{0}) {}
  Scalar(bool value) : value_(value) {}
  Scalar(double value) : value_(value) {}
  Scalar(BFloat16 value) : Scalar(static_cast<double>(static_cast<float>(value))) {}
  Scalar(Half value) : Scalar(static_cast<double>(static_cast<float>(value))) {}
  template <class T, std::enable_if_t<std::is_integral_v<T>, bool> = true>
  Scalar(T value) : value_(static_cast<int64_t>(value)) {}

  bool isBoolean() const { return std::holds_alternative<bool>(value_); }
  bool isFloatingPoint() const { return std::holds_alternative<double>(value_); }
  bool isIntegral(bool includeBool) const {
    return std::holds_alternative<int64_t>(value_) || (includeBool && isBoolean());
  }

  // Of bool, int64_t and double; ends the call where it is of another kind, but that a bool is an int too.
  template <class T>
  T to() const {
    static_assert(std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double>,
                  "a Scalar is a bool, an int64_t or a double");
    if constexpr (std::is_same_v<T, int64_t>) {
      if (isBoolean()) {
        return *std::get_if<bool>(&value_);
      }
    }
    const T* const value = std::get_if<T>(&value_);
    ET_CHECK_MSG(value != nullptr, "the Scalar is no %s",
                 std::is_same_v<T, bool>     ? "bool"
                 : std::is_same_v<T, double> ? "float"
                                             : "int");
    return *value;
  }

 private:
  std::variant<int64_t, double, bool> value_;
};

}  // namespace executorch::runtime::etensor

namespace torch::executor {
using ::executorch::runtime::etensor::Scalar;
}  // namespace torch::executor
