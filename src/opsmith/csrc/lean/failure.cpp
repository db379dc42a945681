// ExecuTorch's logging and aborting, for kernels that run on a PyTorch device: nothing is printed, and
// nothing ends the process.
#include <lean/failure.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <executorch/runtime/platform/abort.h>
#include <executorch/runtime/platform/log.h>

namespace opsmith {
namespace {

thread_local char text[512];

}  // namespace

const char* lean_failure_text() {
  return text;
}

void clear_lean_failure() {
  text[0] = '\0';
}

}  // namespace opsmith

namespace executorch::runtime {

void runtime_abort() {
  throw opsmith::LeanAborted(opsmith::lean_failure_text());
}

namespace internal {

et_timestamp_t get_log_timestamp() {
  return 0;
}

void vlogf(LogLevel, et_timestamp_t, const char*, const char*, size_t, const char* format, va_list args) {
  using opsmith::text;
  // What went wrong first is said first: the checks around it follow.
  size_t used = std::strlen(text);
  if (used > 0 && used + 3 < sizeof(text)) {
    std::strcpy(text + used, "; ");
    used += 2;
  }
  std::vsnprintf(text + used, sizeof(text) - used, format, args);
}

}  // namespace internal
}  // namespace executorch::runtime
