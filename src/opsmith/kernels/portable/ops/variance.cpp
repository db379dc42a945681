// Variances and standard deviations, with the means where they are asked for.
#include "../../common/variance.h"
#include "../common_dtype.h"
#include "../reducer.h"

#include <cmath>

namespace opsmith::portable::native {
namespace {

// Count, mean and sum of squared deviations, joined by the formula of Chan, Golub and LeVeque (1979).
struct Moments {
  int64_t count;
  double mean;
  double squares;
};

template <class C>
struct Variance {
  using Element = C;
  using State = Moments;
  using Results = std::tuple<C, C>;
  double correction;
  bool is_root;

  State start() const { return {0, 0, 0}; }
  void row(State& state, const C* p, int64_t n, int64_t) const {
    for (int64_t first = 0; first < n; first += kTile) {
      const int64_t length = std::min(kTile, n - first);
      double sum = 0;
      for (int64_t k = 0; k < length; ++k) {
        sum += static_cast<double>(p[first + k]);
      }
      const double mean = sum / static_cast<double>(length);
      double squares = 0;
      for (int64_t k = 0; k < length; ++k) {
        const double deviation = static_cast<double>(p[first + k]) - mean;
        squares += deviation * deviation;
      }
      merge(state, {length, mean, squares});
    }
  }
  void element(State& state, C value, int64_t) const {
    const double difference = static_cast<double>(value) - state.mean;
    ++state.count;
    state.mean += difference / static_cast<double>(state.count);
    state.squares += difference * (static_cast<double>(value) - state.mean);
  }
  void merge(State& state, const State& later) const {
    if (state.count == 0) {
      state = later;
      return;
    }
    const double count = static_cast<double>(state.count);
    const double more = static_cast<double>(later.count);
    const double difference = later.mean - state.mean;
    state.mean += difference * (more / (count + more));
    state.squares += later.squares + difference * difference * (count * more / (count + more));
    state.count += later.count;
  }
  Results finish(const State& state) const {
    const double divisor = std::max(0.0, static_cast<double>(state.count) - correction);
    const double variance = state.count == 0 ? NAN : state.squares / divisor;
    return {static_cast<C>(is_root ? std::sqrt(variance) : variance),
            static_cast<C>(state.count == 0 ? NAN : state.mean)};
  }
};

bool is_floating_point(KernelRuntimeContext& context, const Tensor& self) {
  return is_floating(self.scalar_type()) ||
         reject(context, Error::InvalidArgument,
                "std and var only support floating point and complex dtypes");
}

template <const char* Name>
void variance(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
              double correction, bool is_root, bool keepdim, Tensor& out) {
  DimSet dims = 0;
  if (is_floating_point(context, self) && can_store(context, self.scalar_type(), out) &&
      reduced_dims(context, self, dim, dims) && resize_to_reduced(context, out, self, dims, keepdim)) {
    with_compute_dtype<Name>(context, Floating{}, self.scalar_type(), [&](auto type) {
      const Variance<typename decltype(type)::type> policy{correction, is_root};
      reduce(context, policy, self, dims, keepdim, false, out);
    });
  }
}

template <const char* Name>
void variance_and_mean(KernelRuntimeContext& context, const Tensor& self,
                       const OptionalArrayRef<int64_t>& dim, double correction, bool keepdim, Tensor& out,
                       Tensor& mean) {
  DimSet dims = 0;
  if (is_floating_point(context, self) && can_store(context, self.scalar_type(), out) &&
      out_is(context, out.scalar_type(), mean) && reduced_dims(context, self, dim, dims) &&
      resize_to_reduced(context, out, self, dims, keepdim) &&
      resize_to_reduced(context, mean, self, dims, keepdim)) {
    with_compute_dtype<Name>(context, Floating{}, self.scalar_type(), [&](auto type) {
      const Variance<typename decltype(type)::type> policy{correction, false};
      reduce(context, policy, self, dims, keepdim, false, out, mean);
    });
  }
}

}  // namespace

OPSMITH_VARIANCES

}  // namespace opsmith::portable::native
