// The shape that a kernel wanted to give a Tensor which has another. Where PyTorch has no meta function for
// an operator, a call that fails on this is how its result's shape is learned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace opsmith {

struct RejectedShape {
  bool wanted = false;
  size_t dim = 0;
  std::array<int32_t, 16> sizes{};
};

// Returns the shape that was refused last on this thread, and forgets it.
RejectedShape take_rejected_shape();

}  // namespace opsmith
