#include "walk.h"

#include "threads.h"

namespace opsmith::optimized {

void Walk::add(int64_t size, const Offsets& stride) {
  if (size == 1) {
    return;
  }
  // Outermost first: as they lie in the result.
  int at = dims_++;
  for (; at > 0 && dim_[at - 1].stride[0] < stride[0]; --at) {
    dim_[at] = dim_[at - 1];
  }
  dim_[at] = {size, stride};
}

void Walk::merge() {
  int kept = 0;
  for (int d = 0; d < dims_; ++d) {
    bool merged = kept > 0;
    for (int k = 0; merged && k < kOperands; ++k) {
      merged = dim_[kept - 1].stride[k] == dim_[d].size * dim_[d].stride[k];
    }
    if (merged) {
      dim_[kept - 1] = {dim_[kept - 1].size * dim_[d].size, dim_[d].stride};
    } else {
      dim_[kept++] = dim_[d];
    }
  }
  if (kept == 0) {
    dim_[kept++] = {1, {}};
  }
  dims_ = kept;
}

void Walk::run(int64_t grain, Body body) const {
  int64_t rows = 1;
  for (int d = 0; d + 1 < dims_; ++d) {
    rows *= dim_[d].size;
  }
  if (rows == 1) {
    parallel(length(), grain, [&](int64_t begin, int64_t end) {
      Offsets offsets;
      for (int k = 0; k < kOperands; ++k) {
        offsets[k] = begin * stride()[k];
      }
      body(offsets, 1, end - begin);
    });
    return;
  }
  const int64_t length_or_1 = length() > 0 ? length() : 1;
  parallel(rows, grain > length_or_1 ? grain / length_or_1 : 1,
           [&](int64_t begin, int64_t end) { run_rows(begin, end, body); });
}

void Walk::run_rows(int64_t begin, int64_t end, Body body) const {
  const int second = dims_ - 2;
  std::array<int64_t, executorch::runtime::kTensorDimensionLimit> index{};
  Offsets offsets{};
  int64_t rest = begin;
  for (int d = second; d >= 0; --d) {
    index[d] = rest % dim_[d].size;
    rest /= dim_[d].size;
    for (int k = 0; k < kOperands; ++k) {
      offsets[k] += index[d] * dim_[d].stride[k];
    }
  }
  for (int64_t row = begin; row < end;) {
    const int64_t left = dim_[second].size - index[second];
    const int64_t rows = left < end - row ? left : end - row;
    body(offsets, rows, length());
    row += rows;
    // To the begin of the next: the second innermost index starts anew.
    int64_t step = rows;
    for (int d = second; d >= 0; --d, step = 1) {
      for (int k = 0; k < kOperands; ++k) {
        offsets[k] += step * dim_[d].stride[k];
      }
      index[d] += step;
      if (index[d] < dim_[d].size) {
        break;
      }
      for (int k = 0; k < kOperands; ++k) {
        offsets[k] -= index[d] * dim_[d].stride[k];
      }
      index[d] = 0;
    }
  }
}

}  // namespace opsmith::optimized
