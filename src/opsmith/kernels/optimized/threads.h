// When threads are worth it, and when results go past the caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <executorch/runtime/kernel/kernel_includes.h>

#include "../common/parallel.h"

namespace opsmith::optimized {

// From here on a result is streamed to memory: it would not stay in the caches anyway, and they need not read
// it first. But one that is an operand is in the caches already.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

inline bool is_streamed(const executorch::aten::Tensor& out,
                        std::initializer_list<const executorch::aten::Tensor*> operands) {
  return static_cast<int64_t>(out.nbytes()) >= kStreamedBytes &&
         std::none_of(operands.begin(), operands.end(), [&](const executorch::aten::Tensor* operand) {
           return operand->const_data_ptr() == out.const_data_ptr();
         });
}

// The grain size of rows that cost `cost` elements of a simple sum each.
inline int64_t row_grain_size(int64_t cost) {
  return grain_size(cost, 16384);
}

}  // namespace opsmith::optimized
