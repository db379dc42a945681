// The errors of kernels, and the checks that return them.
#pragma once

#include <cstdint>

#include <executorch/runtime/platform/log.h>

namespace executorch::runtime {

using error_code_t = uint32_t;

// The numbers are ExecuTorch's.
#define OPSMITH_FORALL_ERRORS(_)           \
  _(Ok, 0x00)                              \
  _(Internal, 0x01)                        \
  _(InvalidState, 0x02)                    \
  _(EndOfMethod, 0x03)                     \
  _(AlreadyLoaded, 0x04)                   \
  _(NotSupported, 0x10)                    \
  _(NotImplemented, 0x11)                  \
  _(InvalidArgument, 0x12)                 \
  _(InvalidType, 0x13)                     \
  _(OperatorMissing, 0x14)                 \
  _(RegistrationExceedingMaxKernels, 0x15) \
  _(RegistrationAlreadyRegistered, 0x16)   \
  _(NotFound, 0x20)                        \
  _(MemoryAllocationFailed, 0x21)          \
  _(AccessFailed, 0x22)                    \
  _(InvalidProgram, 0x23)                  \
  _(InvalidExternalData, 0x24)             \
  _(OutOfResources, 0x25)                  \
  _(DelegateInvalidCompatibility, 0x30)    \
  _(DelegateMemoryAllocationFailed, 0x31)  \
  _(DelegateInvalidHandle, 0x32)

enum class Error : error_code_t {
#define OPSMITH_ERROR(name, code) name = code,
  OPSMITH_FORALL_ERRORS(OPSMITH_ERROR)
#undef OPSMITH_ERROR
};

constexpr const char* to_string(Error error) {
  switch (error) {
#define OPSMITH_ERROR(name, code) \
  case Error::name:               \
    return "Error::" #name;
    OPSMITH_FORALL_ERRORS(OPSMITH_ERROR)
#undef OPSMITH_ERROR
  }
  return "Error::Unknown";
}

#undef OPSMITH_FORALL_ERRORS

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::Error;
using ::executorch::runtime::error_code_t;
}  // namespace torch::executor

#define ET_CHECK_OR_RETURN_ERROR(condition, error, format, ...) \
  do {                                                          \
    if (!(condition)) {                                         \
      ET_LOG(Error, format, ##__VA_ARGS__);                     \
      return ::executorch::runtime::Error::error;               \
    }                                                           \
  } while (0)

#define ET_CHECK_OR_RETURN_FALSE(condition, format, ...)                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ET_LOG(Error, "Check failed (%s): " format, #condition, ##__VA_ARGS__); \
      return false;                                                           \
    }                                                                         \
  } while (0)

// A message may follow the error.
#define ET_CHECK_OK_OR_RETURN_ERROR(error, ...)                 \
  do {                                                          \
    const ::executorch::runtime::Error opsmith_error = (error); \
    if (opsmith_error != ::executorch::runtime::Error::Ok) {    \
      OPSMITH_LOG_MESSAGE("" __VA_ARGS__);                      \
      return opsmith_error;                                     \
    }                                                           \
  } while (0)

// Logs a message that may be missing, which "" stands before.
#define OPSMITH_LOG_MESSAGE(format, ...)    \
  do {                                      \
    if (sizeof(format) > 1) {               \
      ET_LOG(Error, format, ##__VA_ARGS__); \
    }                                       \
  } while (0)
