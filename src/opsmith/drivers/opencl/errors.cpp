// See errors.h.
#include "errors.h"

namespace opencl {
namespace {

const char* name_of(cl_int error) {
  switch (error) {
    case kDeviceNotFound:
      return "CL_DEVICE_NOT_FOUND";
    case kDeviceNotAvailable:
      return "CL_DEVICE_NOT_AVAILABLE";
    case kObjectAllocationFailure:
      return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case kOutOfResources:
      return "CL_OUT_OF_RESOURCES";
    case kOutOfHostMemory:
      return "CL_OUT_OF_HOST_MEMORY";
    case kBuildFailure:
      return "CL_BUILD_PROGRAM_FAILURE";
    case kInvalidBufferSize:
      return "CL_INVALID_BUFFER_SIZE";
    case kPlatformNotFound:
      return "no platform was found";
    default:
      return "an error of OpenCL";
  }
}

opsmith_status status_of(cl_int error) {
  switch (error) {
    case kObjectAllocationFailure:
    case kInvalidBufferSize:
      return OPSMITH_OUT_OF_MEMORY;
    case kDeviceNotAvailable:
      return OPSMITH_DEVICE_LOST;
    default:
      return OPSMITH_FAILED;
  }
}

}  // namespace

void check(cl_int error, const char* action) {
  if (error != kSuccess) {
    throw Failure(status_of(error),
                  std::string(action) + ": " + name_of(error) + " (" + std::to_string(error) + ")");
  }
}

}  // namespace opencl
