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

// The place for what is said next: what went wrong first is said first, since the checks around it follow.
size_t next_place() {
  const size_t used = std::strlen(text);
  if (used == 0 || used + 3 >= sizeof(text)) {
    return used;
  }
  std::strcpy(text + used, "; ");
  return used + 2;
}

}  // namespace

const char* lean_failure_text() {
  return text;
}

void clear_lean_failure() {
  text[0] = '\0';
}

void add_lean_failure(const char* what) {
  const size_t place = next_place();
  std::snprintf(text + place, sizeof(text) - place, "%s", what);
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
  const size_t place = opsmith::next_place();
  std::vsnprintf(text + place, sizeof(text) - place, format, args);
}

}  // namespace internal
}  // namespace executorch::runtime
