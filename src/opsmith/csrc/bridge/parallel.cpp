// ExecuTorch's parallel_for on the process's own threads: PyTorch's, or those of streams.
#include <ATen/Parallel.h>
#include <executorch/runtime/core/function_ref.h>

#ifndef OPSMITH_FOR_CPU
#include <opsmith/device/stream_threads.h>
#endif

namespace executorch::extension {

bool parallel_for(const int64_t begin, const int64_t end, const int64_t grain_size,
                  runtime::FunctionRef<void(int64_t, int64_t)> work) {
  const auto part = [&](int64_t from, int64_t to) { work(from, to); };
#ifndef OPSMITH_FOR_CPU
  if (opsmith::is_on_stream_thread()) {
    opsmith::parallel_on_stream(begin, end, grain_size, part);
    return true;
  }
#endif
  at::parallel_for(begin, end, grain_size, part);
  return true;
}

int64_t get_thread_num() {
#ifndef OPSMITH_FOR_CPU
  if (const int part = opsmith::part_on_stream(); part > 0) {
    return part;
  }
#endif
  return at::get_thread_num();
}

void set_thread_num(int64_t) {}

}  // namespace executorch::extension

// See kernels/onednn/threads.h, which has the weak definition.
namespace opsmith::caller {

__attribute__((visibility("hidden"))) int threads();
int threads() {
#ifndef OPSMITH_FOR_CPU
  if (is_on_stream_thread()) {
    return detail::stream_threads;
  }
#endif
  return at::get_num_threads();
}

}  // namespace opsmith::caller
