// ExecuTorch's parallel_for on PyTorch's own threads, so that a process has one pool of them.
#include <ATen/Parallel.h>
#include <executorch/runtime/core/function_ref.h>

namespace executorch::extension {

bool parallel_for(const int64_t begin, const int64_t end, const int64_t grain_size,
                  runtime::FunctionRef<void(int64_t, int64_t)> work) {
  at::parallel_for(begin, end, grain_size, [&](int64_t from, int64_t to) { work(from, to); });
  return true;
}

int64_t get_thread_num() {
  return at::get_thread_num();
}

void set_thread_num(int64_t) {}

}  // namespace executorch::extension
