// Kernels compiled from source, and kept on disk for the next process.
#pragma once

#include <string>

#include "api.h"

namespace opencl {

// The program of `source` for a device, built. Throws Failure with the compiler's log.
cl_program build_program(int device, const std::string& source);

}  // namespace opencl
