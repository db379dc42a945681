// Walking over operands of one shape whose elements lie differently: broadcast, permuted, or both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>
#include <executorch/runtime/core/function_ref.h>

namespace opsmith::optimized {

// Dimensions are ordered as they lie in the result, and merged where they are one for all operands. What is
// left has an innermost dimension, of which the body gets whole runs: rows of n elements, as many as lie
// evenly apart.
class Walk {
 public:
  // Operand 0 is the result; strides are in elements.
  static constexpr int kOperands = 3;
  using Offsets = std::array<int64_t, kOperands>;
  using Body = executorch::runtime::FunctionRef<void(const Offsets& offsets, int64_t rows, int64_t n)>;

  void add(int64_t size, const Offsets& stride);
  // Ends the adding of dimensions.
  void merge();

  int64_t length() const { return dim_[dims_ - 1].size; }
  const Offsets& stride() const { return dim_[dims_ - 1].stride; }
  // Between the rows that the body gets at once.
  const Offsets& row_stride() const { return dim_[dims_ > 1 ? dims_ - 2 : 0].stride; }

  // Calls body of all runs, from several threads if there are more than `grain` elements.
  void run(int64_t grain, Body body) const;

 private:
  struct Dimension {
    int64_t size;
    Offsets stride;
  };

  void run_rows(int64_t begin, int64_t end, Body body) const;

  int dims_ = 0;
  std::array<Dimension, executorch::runtime::kTensorDimensionLimit> dim_;
};

}  // namespace opsmith::optimized
