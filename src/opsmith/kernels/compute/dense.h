// What kernels of their own source share: results and lines that lie in order, groups.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "definitions.h"
#include "launch.h"

namespace opsmith::compute {

// A contiguous tensor in the place of `out`, which is given its elements in the end; `out` itself where it is
// contiguous.
class DenseResult {
 public:
  explicit DenseResult(const at::Tensor& out)
      : out_(out), dense_(out.is_contiguous() ? out : at::empty(out.sizes(), out.options())) {}
  ~DenseResult() noexcept(false) {
    if (!dense_.is_same(out_)) {
      out_.copy_(dense_);
    }
  }
  DenseResult(const DenseResult&) = delete;
  DenseResult& operator=(const DenseResult&) = delete;

  const at::Tensor& tensor() const { return dense_; }

 private:
  const at::Tensor& out_;
  const at::Tensor dense_;
};

// A contiguous tensor as lines along one of its dimensions: (outer, length, inner).
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;
};
Lines lines_of(const at::Tensor& tensor, int64_t dim);

// The kernel of a source that uses group.cl, and the number of items of its groups. The source or the
// definitions give C.
opsmith_compute_kernel group_kernel(const char* source, const std::string& definitions, Grid& grid);

}  // namespace opsmith::compute
