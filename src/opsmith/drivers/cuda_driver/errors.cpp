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

}  // namespace

void check(CUresult error, const char* action) {
  if (error != kSuccess) {
    const char* name = nullptr;
    api().GetErrorName(error, &name);
    throw Failure(status_of(error), std::string(action) + ": " +
                                        (name != nullptr ? name : "an unknown error") + " (" +
                                        std::to_string(error) + ")");
  }
}

}  // namespace cuda
