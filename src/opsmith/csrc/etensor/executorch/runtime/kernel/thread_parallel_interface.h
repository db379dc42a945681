// parallel_for: work divided among the process's threads.
#pragma once

#include <cstdint>

#include <c10/util/irange.h>

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/function_ref.h>
#include <executorch/runtime/platform/assert.h>

namespace executorch::extension {

namespace internal {
constexpr int64_t GRAIN_SIZE = 32768;
}

// Calls work(from, to) for ranges that make up begin…end, of `grain_size` each or more.
bool parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                  runtime::FunctionRef<void(int64_t, int64_t)> work);
int64_t get_thread_num();
void set_thread_num(int64_t thread_num);

}  // namespace executorch::extension

namespace torch::executor {
using ::executorch::extension::get_thread_num;
using ::executorch::extension::parallel_for;
using ::executorch::extension::set_thread_num;
}  // namespace torch::executor
