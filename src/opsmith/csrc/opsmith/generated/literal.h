// A string literal as a template argument.
#pragma once

#include <algorithm>
#include <cstddef>

namespace opsmith {

template <size_t kSize>
struct Literal {
  consteval Literal(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
  char text[kSize]{};
};

}  // namespace opsmith
