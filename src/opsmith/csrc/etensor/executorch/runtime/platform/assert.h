// Checks that end the call where they fail; those named D only without NDEBUG.
#pragma once

#include <executorch/runtime/platform/abort.h>
#include <executorch/runtime/platform/compiler.h>
#include <executorch/runtime/platform/log.h>

#define ET_ASSERT_MESSAGE_EMIT(format, ...) \
  ET_LOG(Fatal, "In function %s(), assert failed" format, ET_FUNCTION, ##__VA_ARGS__)

#define ET_CHECK_MSG(condition, format, ...)                               \
  do {                                                                     \
    if ET_UNLIKELY (!(condition)) {                                        \
      ET_ASSERT_MESSAGE_EMIT(" (%s): " format, #condition, ##__VA_ARGS__); \
      ::executorch::runtime::runtime_abort();                              \
    }                                                                      \
  } while (0)

#define ET_CHECK(condition)                       \
  do {                                            \
    if ET_UNLIKELY (!(condition)) {               \
      ET_ASSERT_MESSAGE_EMIT(": %s", #condition); \
      ::executorch::runtime::runtime_abort();     \
    }                                             \
  } while (0)

#ifdef NDEBUG
#define ET_DCHECK(condition) ((void)0)
#define ET_DCHECK_MSG(condition, format, ...) ((void)0)
#define ET_DEBUG_ONLY [[maybe_unused]]
#else
#define ET_DCHECK(condition) ET_CHECK(condition)
#define ET_DCHECK_MSG(condition, format, ...) ET_CHECK_MSG(condition, format, ##__VA_ARGS__)
#define ET_DEBUG_ONLY
#endif

#define ET_ASSERT_UNREACHABLE() ET_CHECK_MSG(false, "Execution should not reach this point")
#define ET_ASSERT_UNREACHABLE_MSG(format, ...) \
  ET_CHECK_MSG(false, "Execution should not reach this point. " format, ##__VA_ARGS__)
