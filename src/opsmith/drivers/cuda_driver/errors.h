// CUDA's errors as failures of the driver.
#pragma once

#include "../shared/failure.h"
#include "api.h"

namespace cuda {

using driver_parts::entry;
using driver_parts::Failure;
using driver_parts::given;
using driver_parts::last_error;

// "<what NVIDIA says it is> (<its name>, <its number>)".
std::string text_of(CUresult error);

// Throws Failure where a function of the driver API did not succeed: "<action>: <text_of() it>".
void check(CUresult error, const char* action);

}  // namespace cuda
