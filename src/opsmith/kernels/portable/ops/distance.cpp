// Distances between rows: _cdist_forward of two sets of them, _pdist_forward within one. Always from the
// differences, which loses nothing where rows are close (compute_mode asks only for speed).
#include <cmath>
#include <optional>

#include "../../common/parallel.h"
#include "../../common/dtypes.h"
#include "../../common/resize.h"
namespace opsmith::portable {
namespace {

constexpr char kCdist[] = "_cdist_forward.out";
constexpr char kPdist[] = "_pdist_forward.out";

// The p-norm of the difference of two rows of n elements. Whether the largest difference is one that is no
// number, ATen answers in one way for pdist and in another for cdist.
template <bool KeepsNan, class E, class T = compute_t<E>>
T distance(const E* from_a, const E* from_b, int64_t n, double p) {
  const auto difference = [=](int64_t i) { return load_element(from_a + i) - load_element(from_b + i); };
  T sum = 0;
  if (p == 0) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = difference(i);
      // NaN stays NaN, as do equal infinities.
      sum += std::isnan(d) ? d : static_cast<T>(d != 0);
    }
    return sum;
  }
  if (p == 1) {
    for (int64_t i = 0; i < n; ++i) {
      sum += std::fabs(difference(i));
    }
    return sum;
  }
  if (p == 2) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = difference(i);
      sum += d * d;
    }
    return std::sqrt(sum);
  }
  if (std::isinf(p)) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = std::fabs(difference(i));
      sum = d > sum || (KeepsNan && d != d) ? d : sum;
    }
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    sum += std::pow(std::fabs(difference(i)), static_cast<T>(p));
  }
  return std::pow(sum, static_cast<T>(1 / p));
}

using Distances = Floating;  // of Half and BFloat16 in ExecuTorch, where ATen has none

// How the batch dimensions of two tensors broadcast.
struct Batches {
  Dims sizes;
  Dims step1;
  Dims step2;
};

bool broadcast_batches(KernelRuntimeContext& context, const Tensor& x1, const Tensor& x2, Batches& batches) {
  const int64_t rank = std::max(x1.dim(), x2.dim());
  for (int64_t d = 0; d < rank - 2; ++d) {
    const int64_t own1 = d - (rank - x1.dim());
    const int64_t own2 = d - (rank - x2.dim());
    const int64_t size1 = own1 < 0 ? 1 : x1.sizes()[own1];
    const int64_t size2 = own2 < 0 ? 1 : x2.sizes()[own2];
    OPSMITH_CHECK(context, size1 == size2 || size1 == 1 || size2 == 1, InvalidArgument, false,
                  "cdist: batch dimensions do not broadcast");
    batches.sizes.push_back(size1 == 1 ? size2 : size1);
    batches.step1.push_back(size1 == 1 ? 0 : x1.strides()[own1]);
    batches.step2.push_back(size2 == 1 ? 0 : x2.strides()[own2]);
  }
  return true;
}

}  // namespace

namespace native {

// x1 (..., P, M) and x2 (..., R, M), contiguous by the manifest; batches broadcast.
Tensor& cdist_forward_out(KernelRuntimeContext& context, const Tensor& x1, const Tensor& x2, double p,
                          std::optional<int64_t> compute_mode, Tensor& out) {
  const int64_t rank1 = x1.dim();
  const int64_t rank2 = x2.dim();
  OPSMITH_CHECK(context, rank1 >= 2 && rank2 >= 2, InvalidArgument, out,
                "cdist only supports at least 2D tensors, but got %d and %d dimensions",
                static_cast<int>(rank1), static_cast<int>(rank2));
  const Dims sizes1 = sizes_of(x1);
  const Dims sizes2 = sizes_of(x2);
  OPSMITH_CHECK(context, sizes1[rank1 - 1] == sizes2[rank2 - 1], InvalidArgument, out,
                "X1 and X2 must have the same number of columns. X1: %" PRId64 " X2: %" PRId64,
                sizes1[rank1 - 1], sizes2[rank2 - 1]);
  OPSMITH_CHECK(context, p >= 0, InvalidArgument, out, "cdist only supports non-negative p values");
  OPSMITH_CHECK(context, compute_mode.value_or(0) >= 0 && compute_mode.value_or(0) <= 2, InvalidArgument, out,
                "possible modes: 0, 1, 2, but was: %" PRId64, *compute_mode);
  OPSMITH_CHECK(context, x1.scalar_type() == x2.scalar_type() && x1.scalar_type() == out.scalar_type(),
                InvalidArgument, out, "cdist: expected operands and out of one dtype");
  Batches batches;
  if (!broadcast_batches(context, x1, x2, batches)) {
    return out;
  }
  const int64_t rows = sizes1[rank1 - 2];
  const int64_t columns = sizes2[rank2 - 2];
  const int64_t n = sizes1[rank1 - 1];
  Dims sizes = batches.sizes;
  sizes.push_back(rows);
  sizes.push_back(columns);
  if (!resize(context, out, sizes) || !are_contiguous(context, {&x1, &x2, &out}) || out.numel() == 0) {
    return out;
  }
  with_dtype<kCdist>(context, Distances{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    parallel(batches.sizes.product() * rows, grain_size(columns * std::max<int64_t>(1, n)),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 const T* a = x1.const_data_ptr<T>() + row % rows * n;
                 const T* b = x2.const_data_ptr<T>();
                 int64_t batch = row / rows;
                 for (int64_t d = batches.sizes.rank - 1; d >= 0; --d) {
                   a += batch % batches.sizes[d] * batches.step1[d];
                   b += batch % batches.sizes[d] * batches.step2[d];
                   batch /= batches.sizes[d];
                 }
                 T* const to = out.mutable_data_ptr<T>() + row * columns;
                 for (int64_t column = 0; column < columns; ++column) {
                   store_element(to + column, distance<false>(a, b + column * n, n, p));
                 }
               }
             });
  });
  return out;
}

Tensor& pdist_forward_out(KernelRuntimeContext& context, const Tensor& self, double p, Tensor& out) {
  OPSMITH_CHECK(context, self.dim() == 2, InvalidArgument, out, "pdist only supports 2D tensors, got: %dD",
                static_cast<int>(self.dim()));
  OPSMITH_CHECK(context, p >= 0, InvalidArgument, out, "pdist only supports non-negative p values");
  if (!same_dtype(context, self, out)) {
    return out;
  }
  const int64_t rows = self.sizes()[0];
  const int64_t n = self.sizes()[1];
  if (!resize(context, out, {rows <= 1 ? 0 : rows * (rows - 1) / 2}) || out.numel() == 0) {
    return out;
  }
  with_dtype<kPdist>(context, Distances{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* const from = self.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    parallel(rows - 1, grain_size(rows * std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* next = to + i * (2 * rows - i - 1) / 2;
        for (int64_t j = i + 1; j < rows; ++j) {
          store_element(next++, distance<true>(from + i * n, from + j * n, n, p));
        }
      }
    });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
