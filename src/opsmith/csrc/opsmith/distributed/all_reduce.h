// The reduction of all ranks' elements over the group's own connections.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

#include <opsmith/distributed/agreement.h>

namespace opsmith {

// Whether this is one contiguous tensor of numbers and a reduction that reduce_function() has.
bool can_all_reduce(const std::vector<at::Tensor>& host, c10d::ReduceOp::RedOpType reduction);

// Agrees on `call`, and reduces `host` in place; every rank gets the same bits. A mean is left a sum. Small
// ones go to all ranks with what they agree on. Large ones of 2^k ranks go by recursive halving and doubling,
// others in a ring: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in
// MPICH, 2005.
void all_reduce(Agreement& agreement, const CollectiveCall& call, int rank, int size, const at::Tensor& host,
                c10d::ReduceOp::RedOpType reduction);

}  // namespace opsmith
