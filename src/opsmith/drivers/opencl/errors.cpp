// See errors.h.
#include "errors.h"

#include <cstdio>

namespace opencl {
namespace {

// A plain array: it has no destructor, so calls made while a thread ends are safe. A compiler's log is long.
constinit thread_local char text_of_thread[8192] = "";

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

opsmith_status remember(opsmith_status status, const char* text) noexcept {
  std::snprintf(text_of_thread, sizeof(text_of_thread), "%s", text);
  return status;
}

const char* last_error() noexcept {
  return text_of_thread;
}

}  // namespace opencl
