// See errors.h.
#include "errors.h"

namespace cuda {
namespace {

opsmith_status status_of(CUresult error) {
  switch (error) {
    case kOutOfMemory:
      return OPSMITH_OUT_OF_MEMORY;
    case kInvalidValue:
      return OPSMITH_INVALID_ARGUMENT;
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kContained:
    case kContextIsDestroyed:
    case kTensorMemoryLeak:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
      return OPSMITH_DEVICE_LOST;
    default:
      return OPSMITH_FAILED;
  }
}

bool is_fault_of_kernel(CUresult error) {
  return error >= kIllegalAddress && error <= kLaunchFailed && error != kContextIsDestroyed &&
         status_of(error) == OPSMITH_DEVICE_LOST;
}

constexpr const char* kWhichKernel =
    "; a kernel that was launched before did this: OPSMITH_LAUNCH_BLOCKING=1 tells which, and NVIDIA's "
    "compute-sanitizer where in it";

}  // namespace

std::string text_of(CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  api().GetErrorName(error, &name);
  api().GetErrorString(error, &text);
  return std::string(text != nullptr ? text : "an unknown error") + " (" +
         (name != nullptr ? std::string(name) + ", " : "") + std::to_string(error) + ")";
}

void check(CUresult error, const char* action) {
  if (error != kSuccess) {
    throw Failure(status_of(error), std::string(action) + ": " + text_of(error) +
                                        (is_fault_of_kernel(error) ? kWhichKernel : ""));
  }
}

}  // namespace cuda
