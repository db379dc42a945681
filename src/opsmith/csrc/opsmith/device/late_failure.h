// The exception of a stream's work, thrown when it ran, after its call had returned.
#pragma once

#include <opsmith/device/calling_line.h>

#include <atomic>
#include <exception>

#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {
extern std::atomic<bool> late_failure_is_kept;
void throw_late_failure();
}  // namespace detail

// Keeps what `operator_name`, called from `line`, has thrown, until it is raised.
void keep_late_failure(std::exception_ptr thrown, const char* operator_name, CallingLine line) noexcept;

// Raises what was kept, with the place of the call. Whoever waits for the device calls it afterwards.
inline void raise_late_failure() {
  if (C10_UNLIKELY(detail::late_failure_is_kept.load(std::memory_order_acquire))) {
    detail::throw_late_failure();
  }
}

}  // namespace opsmith
