// Operators that write every element of their `out` arguments and read none, so that `out` needs no download
// where there is no host window.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <initializer_list>

namespace opsmith {

// For generated code: operators of ATen by name ("add.out"). Called when the library is loaded.
void set_pure_outputs(std::initializer_list<const char*> operators);

bool has_pure_outputs(const c10::OperatorHandle& op);

}  // namespace opsmith
