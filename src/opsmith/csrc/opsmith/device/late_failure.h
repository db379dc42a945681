// What work of a stream threw when it ran, after its call had returned.
#pragma once

#include <atomic>
#include <exception>
#include <memory>

#include <c10/macros/Macros.h>

namespace torch {
struct CapturedTraceback;
}

namespace opsmith {

namespace detail {
extern std::atomic<bool> late_failure_is_kept;
void throw_late_failure();
}  // namespace detail

// Keeps `thrown` by `operator_name`, which `caller` called, until it is raised.
void keep_late_failure(std::exception_ptr thrown, const char* operator_name,
                       std::shared_ptr<torch::CapturedTraceback> caller) noexcept;

// Raises what was kept, with the place of the call. Whoever waits for the device calls it afterwards.
inline void raise_late_failure() {
  if (C10_UNLIKELY(detail::late_failure_is_kept.load(std::memory_order_acquire))) {
    detail::throw_late_failure();
  }
}

}  // namespace opsmith
