// Kernels that sources register themselves, with ExecuTorch's EXECUTORCH_LIBRARY, while the library that
// holds them is loaded. `opsmith build` reads the list to find them; see build/found.py.
#pragma once

#include <cstddef>

extern "C" {
__attribute__((visibility("default"))) size_t opsmith_lean_kernel_count();
// The operator's name, `myop::custom_linear.out`, and the function that takes a stack of values for it.
__attribute__((visibility("default"))) const char* opsmith_lean_kernel_name(size_t index);
__attribute__((visibility("default"))) const void* opsmith_lean_kernel_function(size_t index);
}
