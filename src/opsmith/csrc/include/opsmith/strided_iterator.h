// Iteration over operands of one shape whose elements lie differently: broadcast, permuted, or both. It knows
// no kind of tensor: kernels on lean tensors and those on at::Tensor share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace opsmith {

// Dimensions from the outermost to the innermost, which runs fastest; strides are in elements, and 0 where an
// operand repeats its elements.
template <size_t kOperands, size_t kMostDims = 16>
class StridedIterator {
 public:
  using Offsets = std::array<int64_t, kOperands>;
  using Index = std::array<int64_t, kMostDims>;

  struct Dimension {
    int64_t size;
    Offsets stride;
  };

  size_t rank() const { return rank_; }
  Dimension& operator[](size_t d) { return dims_[d]; }
  const Dimension& operator[](size_t d) const { return dims_[d]; }

  // The innermost dimension, or the one `outwards` from it; a single element where there is none.
  Dimension innermost(size_t outwards = 0) const {
    if (outwards < rank_) {
      return dims_[rank_ - 1 - outwards];
    }
    Dimension single{1, {}};
    single.stride.fill(1);
    return single;
  }

  void add(int64_t size, const Offsets& stride) { dims_[rank_++] = {size, stride}; }

  void add_outermost(int64_t size, const Offsets& stride) {
    std::copy_backward(dims_.begin(), dims_.begin() + rank_, dims_.begin() + rank_ + 1);
    ++rank_;
    dims_[0] = {size, stride};
  }

  // Takes the innermost dimension away.
  Dimension pop() {
    const Dimension last = innermost();
    rank_ -= rank_ == 0 ? 0 : 1;
    return last;
  }

  // Orders dimensions by falling stride of an operand, so that its densest is the innermost. By insertion:
  // there are few, mostly in order, and std::stable_sort allocates.
  void reorder(size_t operand) {
    for (size_t k = 1; k < rank_; ++k) {
      for (size_t j = k; j > 0 && dims_[j - 1].stride[operand] < dims_[j].stride[operand]; --j) {
        std::swap(dims_[j - 1], dims_[j]);
      }
    }
  }

  // Joins neighbours for which one stride serves in every operand, and leaves out dimensions of size 1. The
  // order of positions stays.
  void coalesce() {
    size_t kept = 0;
    for (size_t d = 0; d < rank_; ++d) {
      const Dimension inner = dims_[d];
      if (inner.size == 1) {
        continue;
      }
      bool joined = kept > 0;
      for (size_t k = 0; joined && k < kOperands; ++k) {
        joined = dims_[kept - 1].stride[k] == inner.stride[k] * inner.size;
      }
      if (joined) {
        dims_[kept - 1] = {dims_[kept - 1].size * inner.size, inner.stride};
      } else {
        dims_[kept++] = inner;
      }
    }
    rank_ = kept;
  }

  // How many positions there are.
  int64_t numel() const {
    int64_t product = 1;
    for (size_t d = 0; d < rank_; ++d) {
      product *= dims_[d].size;
    }
    return product;
  }

  // Where each operand has its element of a position; of one that counts all but so many innermost
  // dimensions.
  Offsets offsets(int64_t position, size_t all_but = 0) const {
    Index index;
    return offsets(position, all_but, index);
  }

  // visit(offsets, index) for positions begin…end.
  template <class Visit>
  void for_each(int64_t begin, int64_t end, const Visit& visit) const {
    for_each_run(begin, end, 1,
                 [&visit](const Offsets& at, const Index& index, int64_t) { visit(at, index); });
  }

  // visit(offsets, index, n) for runs of positions of begin…end along the innermost dimension, of at most
  // `longest`.
  template <class Visit>
  void for_each_run(int64_t begin, int64_t end, int64_t longest, const Visit& visit) const {
    if (begin >= end) {
      return;
    }
    Index index;
    Offsets at = offsets(begin, 0, index);
    while (begin < end) {
      int64_t steps =
          rank_ == 0 ? 1 : std::min({longest, dims_[rank_ - 1].size - index[rank_ - 1], end - begin});
      visit(static_cast<const Offsets&>(at), static_cast<const Index&>(index), steps);
      begin += steps;
      for (size_t d = rank_; d-- > 0; steps = 1) {
        index[d] += steps;
        const bool is_done = index[d] == dims_[d].size;
        const int64_t moved = is_done ? steps - dims_[d].size : steps;  // back to its begin
        for (size_t k = 0; k < kOperands; ++k) {
          at[k] += moved * dims_[d].stride[k];
        }
        if (!is_done) {
          break;
        }
        index[d] = 0;
      }
    }
  }

 private:
  Offsets offsets(int64_t position, size_t all_but, Index& index) const {
    Offsets at{};
    for (size_t d = rank_ > all_but ? rank_ - all_but : 0; d-- > 0;) {
      index[d] = position % dims_[d].size;
      position /= dims_[d].size;
      for (size_t k = 0; k < kOperands; ++k) {
        at[k] += index[d] * dims_[d].stride[k];
      }
    }
    return at;
  }

  size_t rank_ = 0;
  std::array<Dimension, kMostDims> dims_;
};

}  // namespace opsmith
