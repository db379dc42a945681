// Accounting for what runs on the CPU in the device's place: for each operator overload the calls, the time,
// the bytes that were moved, what the kernels that refused gave as reason and, only when asked, the lines of
// Python that called.
//
// torch.ops.opsmith.fallback_counts() returns the totals since the library was loaded; `opsmith.fallbacks()`
// is what people call. Each thread counts for itself, without locks or atomic read-modify-writes, so a call
// costs two readings of the clock and one look-up.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ApproximateClock.h>

#include <opsmith/profile/device_work.h>

namespace opsmith {

namespace detail {
struct FallbackCount;
inline thread_local uint64_t bytes_moved = 0;
inline thread_local int64_t fallbacks_begun = 0;
}  // namespace detail

// Adds to what the fallback that this thread is in has moved between host and device.
inline void count_moved(size_t bytes) noexcept {
  detail::bytes_moved += bytes;
}

// How many calls of the fallback this thread has begun.
inline int64_t fallbacks_begun() noexcept {
  return detail::fallbacks_begun;
}

// One call of the fallback, from construction to destruction; counted even where it ends in an exception.
class CountedFallback {
 public:
  // In the place of `device`; `refusal` is the reason that a kernel gave for not computing, null where there
  // is no kernel.
  CountedFallback(const c10::OperatorHandle& op, const std::string* refusal, c10::DeviceIndex device);
  ~CountedFallback();
  CountedFallback(const CountedFallback&) = delete;
  CountedFallback& operator=(const CountedFallback&) = delete;

 private:
  detail::FallbackCount& count_;
  uint64_t moved_before_;
  c10::approx_time_t start_;
  profile::FallbackWork work_;
};

// Counts a call that the process's policy denied.
void count_denied(const c10::OperatorHandle& op);

}  // namespace opsmith
