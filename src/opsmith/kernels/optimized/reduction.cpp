// sum and mean over any dimensions of a dense tensor.
//
// Dimensions are put in the order in which they lie in memory, and neighbours that are both kept, or both
// reduced, are merged. Where the innermost is reduced, contiguous runs are summed; where it is kept, rows are
// added to one another.
#include <algorithm>
#include <limits>
#include <optional>

#include <executorch/runtime/kernel/kernel_includes.h>

#include "dtypes.h"
#include "instruction_set.h"
#include "threads.h"

namespace opsmith::optimized::native {

using executorch::aten::ArrayRef;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

namespace {

template <class T>
using SumEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals);
template <class T>
using SumRows = void(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

constexpr int kMaxDims = static_cast<int>(executorch::runtime::kTensorDimensionLimit);
constexpr int64_t kGrain = 32768;
// Columns whose totals are on a thread's stack.
constexpr int64_t kColumns = 256;
// Rows shorter than kNarrow fill vectors badly; kFolded of them together fill whole ones.
constexpr int64_t kNarrow = 32;
constexpr int64_t kFolded = 16;

struct Dimension {
  int64_t size;
  int64_t stride;         // in the operand
  int64_t result_stride;  // 0 where it is reduced
  bool is_reduced;
};

// A set of dimensions with their product, over which an index in 0…count is turned into offsets.
struct Dimensions {
  int count = 0;
  int64_t numel = 1;
  Dimension dim[kMaxDims];

  void add(const Dimension& one) {
    dim[count++] = one;
    numel *= one.size;
  }
  void offsets(int64_t index, int64_t* offset, int64_t* result_offset) const {
    *offset = 0;
    *result_offset = 0;
    for (int d = count - 1; d >= 0; --d) {
      const int64_t at = index % dim[d].size;
      index /= dim[d].size;
      *offset += at * dim[d].stride;
      *result_offset += at * dim[d].result_stride;
    }
  }
};

// Outermost first; those of size 1 left out; at least one.
Dimensions merged(const Tensor& self, const Tensor& out, const bool* is_reduced, bool keepdim) {
  Dimension all[kMaxDims];
  int count = 0;
  for (int d = 0, to = 0; d < self.dim(); ++d) {
    const bool has_own = !is_reduced[d] || keepdim;
    const int64_t result_stride = is_reduced[d] ? 0 : out.strides()[to];
    to += has_own ? 1 : 0;
    const Dimension one{self.sizes()[d], self.strides()[d], result_stride, is_reduced[d]};
    if (one.size == 1) {
      continue;
    }
    int at = count++;
    for (; at > 0 && all[at - 1].stride < one.stride; --at) {
      all[at] = all[at - 1];
    }
    all[at] = one;
  }
  Dimensions result;
  for (int d = 0; d < count; ++d) {
    if (result.count > 0) {
      Dimension& last = result.dim[result.count - 1];
      if (last.is_reduced == all[d].is_reduced && last.stride == all[d].size * all[d].stride &&
          last.result_stride == all[d].size * all[d].result_stride) {
        last = {last.size * all[d].size, all[d].stride, all[d].result_stride, last.is_reduced};
        result.numel *= all[d].size;
        continue;
      }
    }
    result.add(all[d]);
  }
  return result;
}

// Results whose places begin at `offset` and are `stride` apart.
void put(Tensor& out, int64_t offset, int64_t stride, const double* values, int64_t n, double divisor) {
  constexpr int64_t kBlock = 256;
  float block[kBlock];
  Bfloat16 narrowed[kBlock];
  const bool is_float = out.scalar_type() == ScalarType::Float;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      block[i] = static_cast<float>(values[begin + i] / divisor);
    }
    if (!is_float) {
      OPSMITH_BEST(narrow)(block, narrowed, count);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = offset + (begin + i) * stride;
      if (is_float) {
        static_cast<float*>(out.mutable_data_ptr())[at] = block[i];
      } else {
        static_cast<Bfloat16*>(out.mutable_data_ptr())[at] = narrowed[i];
      }
    }
  }
}

struct Parts {
  Dimensions kept;     // all but the innermost, if that is kept
  Dimensions reduced;  // all but the innermost, if that is reduced
  Dimension inner{1, 1, 0, true};
};

Parts parts_of(const Dimensions& all) {
  Parts parts;
  const int last = all.count - 1;
  // Runs need neighbouring elements; a dense operand's innermost dimension has them.
  if (last >= 0) {
    parts.inner = all.dim[last];
  }
  for (int d = 0; d < last; ++d) {
    (all.dim[d].is_reduced ? parts.reduced : parts.kept).add(all.dim[d]);
  }
  return parts;
}

// Everything into one number, by several threads.
template <class T>
void sum_everything(KernelRuntimeContext& ctx, const T* x, int64_t n, double divisor, Tensor& out,
                    SumEach<T>* sum_each) {
  constexpr int64_t kPart = 65536;
  const int64_t parts = ceil_divided(n, kPart);
  double whole = 0;
  double* totals = nullptr;
  if (parts > 1) {
    const auto memory = ctx.allocate_temp(static_cast<size_t>(parts) * sizeof(double), alignof(double));
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
  Dimensions outer = parts.kept;
  Dimension neighbours{1, 0, 0, false};
  if (outer.count > 0) {
    neighbours = outer.dim[--outer.count];
    outer.numel /= neighbours.size;
  }
  const int64_t length = parts.inner.size * parts.reduced.numel;
  const int64_t together =
      std::max<int64_t>(1, std::min({kTogether, neighbours.size, rows_per_thread(length)}));
  const int64_t pieces = ceil_divided(neighbours.size, together);
  parallel(outer.numel * pieces, rows_per_thread(length * together), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t from, to, offset, none;
      outer.offsets(piece / pieces, &from, &to);
      const int64_t first = piece % pieces * together;
      const int64_t count = std::min(together, neighbours.size - first);
      from += first * neighbours.stride;
      to += first * neighbours.result_stride;
      double totals[kTogether] = {}, some[kTogether];
      for (int64_t run = 0; run < parts.reduced.numel; ++run) {
        parts.reduced.offsets(run, &offset, &none);
        sum_each(x + from + offset, count, neighbours.stride, parts.inner.size, some);
        for (int64_t i = 0; i < count; ++i) {
          totals[i] += some[i];
        }
      }
      put(out, to, neighbours.result_stride, totals, count, divisor);
    }
  });
}

// The rows begin…end of those that are reduced, of `columns` columns: neighbours in one call.
template <class T>
void sum_rows_of(const T* x, const Parts& parts, int64_t begin, int64_t end, int64_t columns, double* totals,
                 SumRows<T>* sum_rows) {
  const Dimensions& reduced = parts.reduced;
  if (reduced.count == 0) {
    sum_rows(x, 1, 0, columns, totals);
    return;
  }
  const Dimension& last = reduced.dim[reduced.count - 1];
  while (begin < end) {
    const int64_t at = begin % last.size;
    int64_t rows = std::min(last.size - at, end - begin);
    int64_t offset, none;
    reduced.offsets(begin, &offset, &none);
    begin += rows;
    if (last.stride == columns && columns < kNarrow && rows >= 4 * kFolded) {
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
    sum_rows(x + offset, rows, last.stride, columns, totals);
  }
}

// The innermost dimension is kept: rows are added to one another, in parts of their columns.
template <class T>
void sum_columns(KernelRuntimeContext& ctx, const T* x, const Parts& parts, double divisor, Tensor& out,
                 SumRows<T>* sum_rows) {
  const int64_t columns = parts.inner.size, rows = parts.reduced.numel;
  const int64_t pieces = ceil_divided(columns, kColumns);
  // Few results of many rows: the rows are divided, and what each part sums added up.
  constexpr int64_t kRowParts = 8;
  if (parts.kept.numel == 1 && pieces == 1 && rows * columns >= 2 * kGrain) {
    const auto memory =
        ctx.allocate_temp(static_cast<size_t>(kRowParts * columns) * sizeof(double), alignof(double));
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
      put(out, 0, parts.inner.result_stride, totals, columns, divisor);
      return;
    }
  }
  const int64_t cost = rows * std::min(columns, kColumns);
  parallel(parts.kept.numel * pieces, rows_per_thread(cost), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      double totals[kColumns] = {};
      int64_t from, to;
      parts.kept.offsets(piece / pieces, &from, &to);
      const int64_t first = piece % pieces * kColumns;
      const int64_t n = std::min(kColumns, columns - first);
      sum_rows_of(x + from + first, parts, 0, rows, n, totals, sum_rows);
      put(out, to + first * parts.inner.result_stride, parts.inner.result_stride, totals, n, divisor);
    }
  });
}

template <class T>
void sum_by_layout(KernelRuntimeContext& ctx, const Tensor& self, const Dimensions& all, double divisor,
                   Tensor& out, SumEach<T>* sum_each, SumRows<T>* sum_rows) {
  const T* const x = static_cast<const T*>(self.const_data_ptr());
  const Parts parts = parts_of(all);
  if (!parts.inner.is_reduced) {
    sum_columns(ctx, x, parts, divisor, out, sum_rows);
  } else if (parts.kept.numel == 1 && parts.reduced.numel == 1) {
    sum_everything(ctx, x, parts.inner.size, divisor, out, sum_each);
  } else {
    sum_runs(x, parts, divisor, out, sum_each);
  }
}

// The dimensions that `dims` names; all where it names none. False for a dimension that there is not, or
// twice.
bool reduced_dims(const Tensor& self, const std::optional<ArrayRef<int64_t>>& dims, bool* is_reduced) {
  const bool all = !dims.has_value() || dims->empty();
  std::fill(is_reduced, is_reduced + kMaxDims, all);
  if (all) {
    return true;
  }
  const int64_t rank = self.dim() == 0 ? 1 : self.dim();
  for (const int64_t dim : *dims) {
    if (dim < -rank || dim >= rank || is_reduced[(dim + rank) % rank]) {
      return false;
    }
    is_reduced[(dim + rank) % rank] = true;
  }
  return true;
}

Tensor& reduce(KernelRuntimeContext& ctx, const Tensor& self, const std::optional<ArrayRef<int64_t>>& dims,
               bool keepdim, Tensor& out, bool is_mean, const char* name, const ByDtype<SumEach>& sum_each,
               const ByDtype<SumRows>& sum_rows) {
  ET_KERNEL_CHECK_MSG(ctx, sum_each.has(self.scalar_type()) && is_taken(out.scalar_type()), NotSupported, out,
                      "%s takes float32 and bfloat16 only", name);
  bool is_reduced[kMaxDims];
  ET_KERNEL_CHECK_MSG(ctx, reduced_dims(self, dims, is_reduced), InvalidArgument, out,
                      "%s: a dimension is named twice, or is none of the operand's", name);
  SizesType sizes[kMaxDims];
  size_t count = 0;
  int64_t each = 1;
  for (int d = 0; d < self.dim(); ++d) {
    each *= is_reduced[d] ? self.sizes()[d] : 1;
    if (!is_reduced[d] || keepdim) {
      sizes[count++] = is_reduced[d] ? 1 : self.sizes()[d];
    }
  }
  ET_KERNEL_CHECK_MSG(ctx, executorch::runtime::resize_tensor(out, {sizes, count}) == Error::Ok,
                      InvalidArgument, out, "%s: the result has another shape", name);
  if (self.numel() == 0) {
    const double value = is_mean ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (int64_t i = 0; i < out.numel(); ++i) {
      put(out, i, 1, &value, 1, 1.0);
    }
    return out;
  }
  const Dimensions all = merged(self, out, is_reduced, keepdim);
  const double divisor = is_mean ? static_cast<double>(each) : 1.0;
  if (self.scalar_type() == ScalarType::Float) {
    sum_by_layout(ctx, self, all, divisor, out, sum_each.on_float, sum_rows.on_float);
  } else {
    sum_by_layout(ctx, self, all, divisor, out, sum_each.on_bfloat16, sum_rows.on_bfloat16);
  }
  return out;
}

}  // namespace

Tensor& sum_dim_out(KernelRuntimeContext& ctx, const Tensor& self, std::optional<ArrayRef<int64_t>> dim,
                    bool keepdim, std::optional<ScalarType> /*dtype*/, Tensor& out) {
  ByDtype<SumEach> sum_each;
  ByDtype<SumRows> sum_rows;
  OPSMITH_SET_FUNCTIONS(sum_each, "sum.IntList_out", sum_each)
  OPSMITH_SET_FUNCTIONS(sum_rows, "sum.IntList_out", sum_rows)
  return reduce(ctx, self, dim, keepdim, out, false, "sum", sum_each, sum_rows);
}

Tensor& mean_dim_out(KernelRuntimeContext& ctx, const Tensor& self, std::optional<ArrayRef<int64_t>> dim,
                     bool keepdim, std::optional<ScalarType> /*dtype*/, Tensor& out) {
  ByDtype<SumEach> sum_each;
  ByDtype<SumRows> sum_rows;
  OPSMITH_SET_FUNCTIONS(sum_each, "mean.out", sum_each)
  OPSMITH_SET_FUNCTIONS(sum_rows, "mean.out", sum_rows)
  return reduce(ctx, self, dim, keepdim, out, true, "mean", sum_each, sum_rows);
}

}  // namespace opsmith::optimized::native
