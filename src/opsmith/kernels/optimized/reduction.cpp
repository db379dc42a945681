// sum and mean over any dimensions of a dense tensor. Where its innermost dimension is reduced, contiguous
// runs are summed; where it is kept, rows are added to one another.
#include <algorithm>
#include <limits>
#include <optional>

#include "../common/resize.h"
#include "by_dtype.h"
#include "dense_reduction.h"
#include "elements.h"
#include "folded_rows.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using SumEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals);
template <class T>
using SumRows = void(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

// Results whose places begin at `offset` and are `stride` apart.
void put(Tensor& out, int64_t offset, int64_t stride, const double* values, int64_t n, double divisor) {
  constexpr int64_t kBlock = 256;
  float block[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      block[i] = static_cast<float>(values[begin + i] / divisor);
    }
    put_elements(block, count, out, offset + begin * stride, stride);
  }
}

template <class T>
struct Sum {
  using State = double;

  State start() const { return 0.0; }
  void add_runs(const T* x, int64_t rows, int64_t stride, int64_t n, int64_t, State* totals) const {
    each(x, rows, stride, n, totals);
  }
  void add_columns(const T* x, int64_t row_count, int64_t stride, int64_t columns, int64_t,
                   State* totals) const {
    if (const int64_t folded = folded_rows(row_count, stride, columns); folded > 1) {
      double of_folded[kMostFolded] = {};
      const int64_t whole = row_count / folded;
      rows(x, whole, folded * columns, folded * columns, of_folded);
      for (int64_t i = 0; i < folded * columns; ++i) {
        totals[i % columns] += of_folded[i];
      }
      x += whole * folded * columns;
      row_count -= whole * folded;
    }
    rows(x, row_count, stride, columns, totals);
  }
  void merge(State& total, State later) const { total += later; }
  void put(int64_t offset, int64_t stride, const State* totals, int64_t n) const {
    native::put(*out, offset, stride, totals, n, divisor);
  }

  double divisor;
  Tensor* out;
  SumEach<T>* each;
  SumRows<T>* rows;
};

Tensor& reduce(KernelRuntimeContext& context, const Tensor& self,
               const std::optional<ArrayRef<int64_t>>& dims, bool keepdim, std::optional<ScalarType> dtype,
               Tensor& out, bool is_mean, const char* name, const ByDtype<SumEach>& sum_each,
               const ByDtype<SumRows>& sum_rows) {
  OPSMITH_CHECK(context, sum_each.has(self.scalar_type()) && is_taken(out.scalar_type()), NotSupported, out,
                "%s takes " OPSMITH_TAKEN " only", name);
  DimSet reduced = 0;
  if (!out_is(context, dtype.value_or(out.scalar_type()), out) ||
      !reduced_dims(context, self, dims, reduced) ||
      !resize_to_reduced(context, out, self, reduced, keepdim)) {
    return out;
  }
  if (self.numel() == 0) {
    const double value = is_mean ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (int64_t i = 0; i < out.numel(); ++i) {
      put(out, i, 1, &value, 1, 1.0);
    }
    return out;
  }
  const ReductionParts parts = parts_of(reduction_layout(self, out, reduced, keepdim));
  const double divisor = is_mean ? static_cast<double>(reduced_length(self, reduced)) : 1.0;
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    reduce_dense(context, Sum<T>{divisor, &out, sum_each.of(element), sum_rows.of(element)},
                 static_cast<const T*>(self.const_data_ptr()), parts);
  });
  return out;
}

template <const char* Operator>
Tensor& reduce(KernelRuntimeContext& context, const Tensor& self,
               const std::optional<ArrayRef<int64_t>>& dims, bool keepdim, std::optional<ScalarType> dtype,
               Tensor& out, bool is_mean, const char* name) {
  ByDtype<SumEach> each;
  ByDtype<SumRows> rows;
  OPSMITH_SET_FUNCTIONS(each, Operator, sum_each)
  OPSMITH_SET_FUNCTIONS(rows, Operator, sum_rows)
  return reduce(context, self, dims, keepdim, dtype, out, is_mean, name, each, rows);
}

constexpr char kSum[] = "sum.IntList_out";
constexpr char kSumAll[] = "sum.out";
constexpr char kMean[] = "mean.out";
constexpr char kMeanAll[] = "mean.dtype_out";

}  // namespace

Tensor& sum_dim_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ArrayRef<int64_t>> dim,
                    bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  return reduce<kSum>(context, self, dim, keepdim, dtype, out, false, "sum");
}

Tensor& sum_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ScalarType> dtype,
                Tensor& out) {
  return reduce<kSumAll>(context, self, std::nullopt, false, dtype, out, false, "sum");
}

Tensor& mean_dim_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ArrayRef<int64_t>> dim,
                     bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  return reduce<kMean>(context, self, dim, keepdim, dtype, out, true, "mean");
}

Tensor& mean_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ScalarType> dtype,
                 Tensor& out) {
  return reduce<kMeanAll>(context, self, std::nullopt, false, dtype, out, true, "mean");
}

}  // namespace opsmith::optimized::native
