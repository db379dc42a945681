// The attributes that ExecuTorch's kernels are written with, by the names that it has for them.
#pragma once

#include <sys/types.h>

#define ET_NORETURN [[noreturn]]
#define ET_NODISCARD [[nodiscard]]
#define ET_DEPRECATED [[deprecated]]
#define ET_EXPERIMENTAL [[deprecated("experimental: it may change without notice")]]
#define ET_FALLTHROUGH [[fallthrough]]
#define ET_UNUSED [[maybe_unused]]

#define ET_NOINLINE __attribute__((noinline))
#define ET_INLINE __attribute__((always_inline)) inline
#define ET_WEAK __attribute__((weak))
#define ET_RESTRICT __restrict__
#define ET_UNREACHABLE() __builtin_unreachable()
#define ET_PRINTFLIKE(format_index, first_index) __attribute__((format(printf, format_index, first_index)))

// They stand after `if`, without parentheses: if ET_UNLIKELY (x == nullptr) { … }
#define ET_LIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 1))
#define ET_UNLIKELY(condition) (__builtin_expect(static_cast<bool>(condition), 0))

#define ET_FUNCTION __builtin_FUNCTION()
#define ET_LINE __builtin_LINE()
#ifdef __FILE_NAME__
#define ET_SHORT_FILENAME __FILE_NAME__
#else
#define ET_SHORT_FILENAME (__builtin_strrchr("/" __FILE__, '/') + 1)
#endif

#define ET_PRIsize_t "zu"
#define ET_PRIssize_t "zd"
#define ET_HAVE_GNU_STATEMENT_EXPRESSIONS 1
#ifdef __EXCEPTIONS
#define ET_HAS_EXCEPTIONS 1
#else
#define ET_HAS_EXCEPTIONS 0
#endif
