// See errors.h.
#include "errors.h"

#include <cstdarg>
#include <cstdio>

namespace sim {

namespace {
// A plain array: it has no destructor, so calls made while a thread ends are safe.
constinit thread_local char text[1024] = "";
}  // namespace

opsmith_status fail(opsmith_status status, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return status;
}

const char* last_error() noexcept {
  return text;
}

}  // namespace sim
