// The threads on which kernels compute that run on a stream's thread.
//
// Note [One team of OpenMP]
// ~~~~~~~~~~~~~~~~~~~~~~~~~
// OpenMP keeps a team of threads for each thread that opens a parallel region. When the teams together have
// more threads than the machine has cores, their idle threads go to sleep at once, and every region of every
// team, PyTorch's CPU operators among them, begins with a system call. So kernels on streams' threads share a
// team of their own.
#pragma once

#include <cstdint>

#include <c10/util/FunctionRef.h>

namespace opsmith {

namespace detail {
inline thread_local int stream_threads = 0;
}

// While it lives, this thread runs a kernel of a stream, on as many threads as its caller would.
class OnStreamThread {
 public:
  explicit OnStreamThread(int threads) noexcept { detail::stream_threads = threads; }
  ~OnStreamThread() { detail::stream_threads = 0; }
  OnStreamThread(const OnStreamThread&) = delete;
  OnStreamThread& operator=(const OnStreamThread&) = delete;
};

inline bool is_on_stream_thread() noexcept {
  return detail::stream_threads > 0;
}

// at::parallel_for() there: the same parts, of which this thread does the first.
void parallel_on_stream(int64_t begin, int64_t end, int64_t grain_size,
                        c10::function_ref<void(int64_t, int64_t)> work);

// The number of the part that this thread does.
int part_on_stream() noexcept;

}  // namespace opsmith
