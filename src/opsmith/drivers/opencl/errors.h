// OpenCL's errors as failures of the driver.
#pragma once

#include "../shared/failure.h"
#include "api.h"

namespace opencl {

using driver_parts::entry;
using driver_parts::Failure;
using driver_parts::given;
using driver_parts::last_error;

// Throws Failure where an OpenCL function did not succeed: "<action>: <the error's name in OpenCL>".
void check(cl_int error, const char* action);

}  // namespace opencl
