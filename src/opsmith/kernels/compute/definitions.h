// The definitions that a kernel's source is compiled with: lines of #define before it.
#pragma once

#include <concepts>
#include <string>

#include <c10/core/ScalarType.h>

namespace opsmith::compute {

inline std::string definition(const std::string& name, const std::string& value = "") {
  return "#define " + name + " " + value + "\n";
}

template <std::integral T>
std::string definition(const std::string& name, T value) {
  return definition(name, std::to_string(value));
}

inline std::string definition(const std::string& name, at::ScalarType dtype) {
  return definition(name, c10::toString(dtype));
}

inline std::string definition_if(bool condition, const std::string& name) {
  return condition ? definition(name) : "";
}

}  // namespace opsmith::compute
