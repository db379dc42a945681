// Accounting for what the CPU computes in the device's place, as fallback or in a kernel on copies: for each
// operator overload the calls, the time, the bytes that were moved, what the kernels that refused gave as
// reason and, only when asked, the lines of Python that called.
//
// torch.ops.opsmith.fallback_counts() returns the totals since the library was loaded; `opsmith.fallbacks()`
// is what people call. Each thread counts for itself, without locks or atomic read-modify-writes, so a call
// costs two readings of the clock and one look-up.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ApproximateClock.h>

#include <opsmith/device/copy_bytes.h>
#include <opsmith/device/device_work.h>

namespace opsmith {

namespace detail {
struct FallbackCount;
inline thread_local int64_t fallbacks_begun = 0;
inline thread_local int64_t host_kernels_begun = 0;
}  // namespace detail

// How many calls of the fallback this thread has begun.
inline int64_t fallbacks_begun() noexcept {
  return detail::fallbacks_begun;
}

// How many calls of kernels on copies this thread has begun; one that refused and fell back is not among
// them.
inline int64_t host_kernels_begun() noexcept {
  return detail::host_kernels_begun;
}

// A call from construction to destruction, counted even where it ends in an exception. Its time and bytes are
// without those of the counted calls inside it.
class CountedCall {
 public:
  ~CountedCall();
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

 protected:
  // Null: nothing is counted.
  explicit CountedCall(detail::FallbackCount* count);
  uint64_t moved() const;

  detail::FallbackCount* const count_;

 private:
  int64_t nested_ticks_before_;
  uint64_t nested_moved_before_;
  uint64_t moved_before_;
  c10::approx_time_t start_;
};

// A call of the fallback.
class CountedFallback : public CountedCall {
 public:
  // In the place of `device`; `refusal` is the reason that a kernel gave for not computing, null where there
  // is no kernel.
  CountedFallback(const c10::OperatorHandle& op, const std::string* refusal, c10::DeviceIndex device);
  ~CountedFallback();

 private:
  profile::FallbackWork work_;
};

// A call of a kernel that runs on the host, on copies of the current device's memory.
class CountedHostKernel : public CountedCall {
 public:
  // `operator_name` ("aten::add.out") lives as long as the process; null: no call. Throws NotImplementedError
  // where the process's policy denies such kernels.
  explicit CountedHostKernel(const char* operator_name);
  ~CountedHostKernel();

  // The kernel has refused the call, which goes on to another.
  void take_back();

 private:
  friend class CountedFallback;
  // To the fallback, where the kernel is `op`'s and has not taken the call.
  void hand_over(const c10::OperatorHandle& op);

  CountedHostKernel* outer_;
  profile::HostWork work_;
};

// Whether a kernel of this thread works on copies: Tensors of the CPU's stand for the device's, its
// generators for themselves.
bool is_in_host_kernel();

// Counts a call that the process's policy denied.
void count_denied(const c10::OperatorHandle& op);

}  // namespace opsmith
