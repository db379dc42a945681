// Variances and standard deviations over any dimensions of a dense tensor, with the means where they are
// asked for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "../common/variance.h"
#include "by_dtype.h"
#include "dense_reduction.h"
#include "elements.h"
#include "folded_rows.h"
#include "moments.h"
#include "statistics_functions.h"

namespace opsmith::optimized {
namespace {

// The result to compute from moments.
struct Asked {
  double correction;
  bool is_root;
};

template <class T>
struct Variance {
  using State = Moments;

  State start() const { return {}; }
  void add_runs(const T* x, int64_t rows, int64_t stride, int64_t n, int64_t, State* states) const {
    add_moments_of_runs(x, rows, stride, n, each, states);
  }
  void add_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, int64_t, State* states) const {
    if (const int64_t folded = folded_rows(rows, stride, columns); folded > 1) {
      const int64_t whole = rows / folded;
      take_moments_of_columns(
          x, whole, folded * columns, folded * columns, of_columns,
          [&](int64_t column, int64_t n, double count, const float* means, const float* squares) {
            for (int64_t k = 0, to = column % columns; k < n; ++k, to = to + 1 == columns ? 0 : to + 1) {
              states[to].add(count, static_cast<double>(means[k]), static_cast<double>(squares[k]));
            }
          });
      x += whole * folded * columns;
      rows -= whole * folded;
    }
    take_moments_of_columns(
        x, rows, stride, columns, of_columns,
        [&](int64_t column, int64_t n, double count, const float* means, const float* squares) {
          for (int64_t k = 0; k < n; ++k) {
            states[column + k].add(count, static_cast<double>(means[k]), static_cast<double>(squares[k]));
          }
        });
  }
  void merge(State& state, const State& later) const { state.add(later); }
  void put(int64_t offset, int64_t stride, const State* states, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const double variance = states[i].squares / std::max(0.0, states[i].count - asked.correction);
      put_element(static_cast<float>(asked.is_root ? std::sqrt(variance) : variance), *out,
                  offset + i * stride);
      if (mean != nullptr) {
        // Of infinities it is NaN, as PyTorch's.
        const bool is_nan = std::isnan(states[i].squares);
        put_element(static_cast<float>(is_nan ? states[i].squares : states[i].mean), *mean,
                    offset + i * stride);
      }
    }
  }

  Asked asked;
  Tensor* out;
  Tensor* mean;  // null where nobody asks for it; it lies as `out` does
  MomentsEach<T>* each;
  MomentsOfColumns<T>* of_columns;
};

template <const char* Operator>
void variance(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
              double correction, bool is_root, bool keepdim, Tensor& out, Tensor* mean = nullptr) {
  ByDtype<MomentsEach> each;
  ByDtype<MomentsOfColumns> of_columns;
  OPSMITH_SET_FUNCTIONS(each, Operator, moments_each)
  OPSMITH_SET_FUNCTIONS(of_columns, Operator, moments_of_columns)
  if (!each.has(self.scalar_type()) || !is_taken(out.scalar_type())) {
    reject(context, Error::NotSupported, "std and var take " OPSMITH_TAKEN " only");
    return;
  }
  DimSet dims = 0;
  if ((mean != nullptr && !out_is(context, out.scalar_type(), *mean)) ||
      !reduced_dims(context, self, dim, dims) || !resize_to_reduced(context, out, self, dims, keepdim) ||
      (mean != nullptr && !resize_to_reduced(context, *mean, self, dims, keepdim))) {
    return;
  }
  if (self.numel() == 0) {
    for (int64_t i = 0; i < out.numel(); ++i) {
      put_element(std::numeric_limits<float>::quiet_NaN(), out, i);
      if (mean != nullptr) {
        put_element(std::numeric_limits<float>::quiet_NaN(), *mean, i);
      }
    }
    return;
  }
  if (mean != nullptr && !same_layout(out, *mean)) {
    reject(context, Error::InvalidArgument, "var_mean: both results have to lie alike");
    return;
  }
  const ReductionParts parts = parts_of(reduction_layout(self, out, dims, keepdim));
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    reduce_dense(context,
                 Variance<T>{{correction, is_root}, &out, mean, each.of(element), of_columns.of(element)},
                 static_cast<const T*>(self.const_data_ptr()), parts);
  });
}

template <const char* Operator>
void variance_and_mean(KernelRuntimeContext& context, const Tensor& self,
                       const OptionalArrayRef<int64_t>& dim, double correction, bool keepdim, Tensor& out,
                       Tensor& mean) {
  variance<Operator>(context, self, dim, correction, false, keepdim, out, &mean);
}

}  // namespace

namespace native {

OPSMITH_VARIANCES

}  // namespace native
}  // namespace opsmith::optimized
