// Elementwise reductions of two ranks' elements, on the host.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>

namespace opsmith {

// into[i] = into[i] reduced with from[i].
using Reduce = void (*)(void* into, const void* from, size_t elements);

// For sums, products, minima and maxima of numbers; null for other dtypes and reductions. A mean is a sum
// here.
Reduce reduce_function(c10::ScalarType dtype, c10d::ReduceOp::RedOpType reduction);

// Its name; empty for one that has none.
const char* name_of(c10d::ReduceOp::RedOpType reduction);

}  // namespace opsmith
