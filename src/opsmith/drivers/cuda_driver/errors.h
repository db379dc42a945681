// CUDA's errors as failures of the driver.
#pragma once

#include "../shared/failure.h"
#include "api.h"

namespace cuda {

using driver_parts::entry;
using driver_parts::Failure;
using driver_parts::given;
using driver_parts::last_error;

// Throws Failure where a function of the driver API did not succeed: "<action>: <the error's name>".
void check(CUresult error, const char* action);

}  // namespace cuda
