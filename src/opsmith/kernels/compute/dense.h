// Helpers of kernels with a source of their own: results and lines that lie in order, groups.
#pragma once

#include <initializer_list>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "../common/operand_dtypes.h"
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

// The dtype that weights, biases and statistics of a norm share; the input's where there are none. Refuses,
// as the CPU, others than the input's, or than float32 beside halves.
at::ScalarType parameters_dtype(const at::Tensor& input, std::initializer_list<at::Tensor> parameters);

// How the items of a group move a line's elements: `width` at once, and each keeps up to `kept` such runs of
// what it reads, or reads them again where that is 0.
struct Runs {
  int64_t width = 1, items = 8, kept = 0;
};

// For lines of `length` elements of `tensors`, which begin at multiples of `step` and are in order where
// `dense`.
Runs line_runs(int64_t length, int64_t step, bool dense, std::initializer_list<at::Tensor> tensors);

// The kernel of a source that uses group.cl on elements of `in` and computes as for those of `computed`.
opsmith_compute_kernel group_kernel(const char* source, const std::string& definitions, const Runs& runs,
                                    at::ScalarType in, at::ScalarType computed, Grid& grid);

// How many elements one load or store moves where each of `tensors` begins at a multiple of it, as `step`,
// their lines' distance, is, and has its elements in order: 1 where that is not so.
int64_t vector_width(int64_t step, std::initializer_list<at::Tensor> tensors);

}  // namespace opsmith::compute
