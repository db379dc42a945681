// Logging, as printf formats it. On a PyTorch device what a kernel logs is the text of its error.
#pragma once

#include <cinttypes>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <executorch/runtime/platform/compiler.h>

#ifndef ET_LOG_ENABLED
#define ET_LOG_ENABLED 1
#endif
#ifndef ET_MIN_LOG_LEVEL
#define ET_MIN_LOG_LEVEL Info
#endif

extern "C" {
typedef uint64_t et_timestamp_t;
}

namespace executorch::runtime {

enum class LogLevel : uint8_t { Debug, Info, Error, Fatal, NumLevels };

namespace internal {

et_timestamp_t get_log_timestamp();

ET_PRINTFLIKE(6, 0)
void vlogf(LogLevel level, et_timestamp_t time, const char* file, const char* function, size_t line,
           const char* format, va_list arguments);

ET_PRINTFLIKE(6, 7)
inline void logf(LogLevel level, et_timestamp_t time, const char* file, const char* function, size_t line,
                 const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlogf(level, time, file, function, line, format, arguments);
  va_end(arguments);
}

}  // namespace internal
}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::LogLevel;
}  // namespace torch::executor

#if ET_LOG_ENABLED
#define ET_LOG(level, format, ...)                                                                           \
  do {                                                                                                       \
    if (::executorch::runtime::LogLevel::level >= ::executorch::runtime::LogLevel::ET_MIN_LOG_LEVEL) {       \
      ::executorch::runtime::internal::logf(::executorch::runtime::LogLevel::level,                          \
                                            ::executorch::runtime::internal::get_log_timestamp(),            \
                                            ET_SHORT_FILENAME, ET_FUNCTION, ET_LINE, format, ##__VA_ARGS__); \
    }                                                                                                        \
  } while (0)
#else
#define ET_LOG(level, format, ...) ((void)0)
#endif

#define ET_CHECK_OR_LOG_ERROR(condition, format, ...) \
  do {                                                \
    if (!(condition)) {                               \
      ET_LOG(Error, format, ##__VA_ARGS__);           \
    }                                                 \
  } while (0)
