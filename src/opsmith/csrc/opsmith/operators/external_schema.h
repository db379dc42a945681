// Operators that this library implements, and that another one may have defined.
#pragma once

#include <vector>

#include <torch/library.h>

namespace opsmith {

// Defines the operator of `schema`, a whole one with its namespace, unless it is defined already. Throws
// RuntimeError where it is with another schema.
void define_unless_defined(torch::Library& library, const char* schema, const std::vector<at::Tag>& tags);

}  // namespace opsmith
