// sum and mean over any dimensions of a dense tensor. Where its innermost dimension is reduced, contiguous
// runs are summed; where it is kept, rows are added to one another.
#include <algorithm>
#include <limits>
#include <optional>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "by_dtype.h"
#include "elements.h"
#include "reduction_layout.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using SumEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals);
template <class T>
using SumRows = void(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

// Columns whose totals are on a thread's stack.
constexpr int64_t kColumns = 256;
// Rows shorter than kNarrow fill vectors badly; kFolded of them together fill whole ones.
constexpr int64_t kNarrow = 32;
constexpr int64_t kFolded = 16;

using Layout = ReductionLayout;
using Dimension = Layout::Dimension;
using Parts = ReductionParts;

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

// Everything into one number, by several threads.
template <class T>
void sum_everything(KernelRuntimeContext& context, const T* x, int64_t n, double divisor, Tensor& out,
                    SumEach<T>* sum_each) {
  constexpr int64_t kPart = 65536;
  const int64_t parts = ceil_divided(n, kPart);
  double whole = 0;
  double* totals = nullptr;
  if (parts > 1) {
    const auto memory = context.allocate_temp(static_cast<size_t>(parts) * sizeof(double), alignof(double));
    totals = memory.ok() ? static_cast<double*>(memory.get()) : nullptr;
  }
  if (totals == nullptr) {
    sum_each(x, 1, 0, n, &whole);
  } else {
    parallel(parts, 1, [=](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        sum_each(x + part * kPart, 1, 0, std::min(kPart, n - part * kPart), totals + part);
      }
    });
    for (int64_t part = 0; part < parts; ++part) {
      whole += totals[part];
    }
  }
  put(out, 0, 1, &whole, 1, divisor);
}

// The innermost dimension is reduced: each result is a sum of runs. Results that are neighbours are computed
// together.
template <class T>
void sum_runs(const T* x, const Parts& parts, double divisor, Tensor& out, SumEach<T>* sum_each) {
  constexpr int64_t kTogether = 256;
  Layout outer = parts.kept;
  const Dimension neighbours = outer.pop();
  const int64_t runs = parts.reduced.numel(), length = parts.inner.size * runs;
  const int64_t together =
      std::max<int64_t>(1, std::min({kTogether, neighbours.size, rows_per_thread(length)}));
  const int64_t pieces = ceil_divided(neighbours.size, together);
  parallel(outer.numel() * pieces, rows_per_thread(length * together), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const auto [outer_from, outer_to] = outer.offsets(piece / pieces);
      const int64_t first = piece % pieces * together;
      const int64_t count = std::min(together, neighbours.size - first);
      const T* const from = x + outer_from + first * neighbours.stride[0];
      double totals[kTogether] = {}, some[kTogether];
      parts.reduced.for_each(0, runs, [&](const auto& offset, const auto&) {
        sum_each(from + offset[0], count, neighbours.stride[0], parts.inner.size, some);
        for (int64_t i = 0; i < count; ++i) {
          totals[i] += some[i];
        }
      });
      put(out, outer_to + first * neighbours.stride[1], neighbours.stride[1], totals, count, divisor);
    }
  });
}

// The rows begin…end of those that are reduced, of `columns` columns: neighbours in one call.
template <class T>
void sum_rows_of(const T* x, const Parts& parts, int64_t begin, int64_t end, int64_t columns, double* totals,
                 SumRows<T>* sum_rows) {
  const int64_t stride = parts.reduced.innermost().stride[0];
  parts.reduced.for_each_run(begin, end, end - begin, [&](const auto& at, const auto&, int64_t rows) {
    int64_t offset = at[0];
    if (stride == columns && columns < kNarrow && rows >= 4 * kFolded) {
      // Whole vectors of several rows at once.
      double folded[kNarrow * kFolded] = {};
      const int64_t whole = rows / kFolded;
      sum_rows(x + offset, whole, kFolded * columns, kFolded * columns, folded);
      for (int64_t row = 0; row < kFolded; ++row) {
        for (int64_t i = 0; i < columns; ++i) {
          totals[i] += folded[row * columns + i];
        }
      }
      offset += whole * kFolded * columns;
      rows -= whole * kFolded;
    }
    sum_rows(x + offset, rows, stride, columns, totals);
  });
}

// The innermost dimension is kept: rows are added to one another, in parts of their columns.
template <class T>
void sum_columns(KernelRuntimeContext& context, const T* x, const Parts& parts, double divisor, Tensor& out,
                 SumRows<T>* sum_rows) {
  const int64_t columns = parts.inner.size, rows = parts.reduced.numel();
  const int64_t pieces = ceil_divided(columns, kColumns);
  // Few results of many rows: the rows are divided, and what each part sums added up.
  constexpr int64_t kRowParts = 8;
  if (parts.kept.numel() == 1 && pieces == 1 && rows * columns >= 2 * kGrain) {
    const auto memory =
        context.allocate_temp(static_cast<size_t>(kRowParts * columns) * sizeof(double), alignof(double));
    if (memory.ok()) {
      double* const totals = static_cast<double*>(memory.get());
      std::fill(totals, totals + kRowParts * columns, 0.0);
      parallel(kRowParts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part) {
          sum_rows_of(x, parts, rows * part / kRowParts, rows * (part + 1) / kRowParts, columns,
                      totals + part * columns, sum_rows);
        }
      });
      for (int64_t part = 1; part < kRowParts; ++part) {
        for (int64_t i = 0; i < columns; ++i) {
          totals[i] += totals[part * columns + i];
        }
      }
      put(out, 0, parts.inner.stride[1], totals, columns, divisor);
      return;
    }
  }
  const int64_t cost = rows * std::min(columns, kColumns);
  parallel(parts.kept.numel() * pieces, rows_per_thread(cost), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      double totals[kColumns] = {};
      const auto [from, to] = parts.kept.offsets(piece / pieces);
      const int64_t first = piece % pieces * kColumns;
      const int64_t n = std::min(kColumns, columns - first);
      sum_rows_of(x + from + first, parts, 0, rows, n, totals, sum_rows);
      put(out, to + first * parts.inner.stride[1], parts.inner.stride[1], totals, n, divisor);
    }
  });
}

template <class T>
void sum_by_layout(KernelRuntimeContext& context, const Tensor& self, const Layout& all, double divisor,
                   Tensor& out, SumEach<T>* sum_each, SumRows<T>* sum_rows) {
  const T* const x = static_cast<const T*>(self.const_data_ptr());
  const Parts parts = parts_of(all);
  if (!parts.is_inner_reduced()) {
    sum_columns(context, x, parts, divisor, out, sum_rows);
  } else if (parts.kept.numel() == 1 && parts.reduced.numel() == 1) {
    sum_everything(context, x, parts.inner.size, divisor, out, sum_each);
  } else {
    sum_runs(x, parts, divisor, out, sum_each);
  }
}

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
  const Layout all = reduction_layout(self, out, reduced, keepdim);
  const double divisor = is_mean ? static_cast<double>(reduced_length(self, reduced)) : 1.0;
  with_element(self.scalar_type(), [&](auto element) {
    sum_by_layout(context, self, all, divisor, out, sum_each.of(element), sum_rows.of(element));
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
