// See failure.h.
#include "failure.h"

#include <opsmith_compute.h>

#include <cstdio>

namespace driver_parts {
namespace {

// A plain array: it has no destructor, so calls made while a thread ends are safe. A compiler's log is long.
constinit thread_local char text_of_thread[8192] = "";

}  // namespace

opsmith_status remember(opsmith_status status, const char* text) noexcept {
  std::snprintf(text_of_thread, sizeof(text_of_thread), "%s", text);
  return status;
}

const char* last_error() noexcept {
  return text_of_thread;
}

const char* fault_text(int fault) noexcept {
  return fault == OPSMITH_COMPUTE_FAULT_TARGET
             ? "a kernel that was launched before met a target that is none of the classes"
             : "a kernel that was launched before met an index that is out of range";
}

}  // namespace driver_parts
