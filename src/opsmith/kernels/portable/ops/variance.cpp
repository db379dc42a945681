// Variances and standard deviations, with the means where they are asked for.
#include "../common_dtype.h"
#include "../reducer.h"

#include <cmath>

namespace opsmith::portable::native {
namespace {

using executorch::aten::OptionalArrayRef;

constexpr char kVar[] = "var.out";
constexpr char kVarCorrection[] = "var.correction_out";
constexpr char kStd[] = "std.out";
constexpr char kStdCorrection[] = "std.correction_out";
constexpr char kVarMean[] = "var_mean.correction_out";

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

double correction_or_one(const std::optional<Scalar>& correction) {
  return correction.has_value() ? value_of<double>(*correction) : 1.0;
}

template <const char* Name>
Tensor& variance(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
                 double correction, bool is_root, bool keepdim, Tensor& out) {
  DimSet dims = 0;
  if (is_floating_point(context, self) && can_store(context, self.scalar_type(), out) &&
      reduced_dims(context, self, dim, dims) && resize_to_reduced(context, out, self, dims, keepdim)) {
    with_compute_dtype<Name>(context, Floating{}, self.scalar_type(), [&](auto type) {
      const Variance<typename decltype(type)::type> policy{correction, is_root};
      reduce(context, policy, self, dims, keepdim, false, out);
    });
  }
  return out;
}

}  // namespace

#define OPSMITH_VARIANCE(name, Name, is_root)                                                              \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, OptionalArrayRef<int64_t> dim,     \
                     bool unbiased, bool keepdim, Tensor& out) {                                           \
    return variance<Name>(context, self, dim, unbiased ? 1 : 0, is_root, keepdim, out);                    \
  }                                                                                                        \
  Tensor& name##_correction_out(KernelRuntimeContext& context, const Tensor& self,                         \
                                OptionalArrayRef<int64_t> dim, const std::optional<Scalar>& correction,    \
                                bool keepdim, Tensor& out) {                                               \
    return variance<Name##Correction>(context, self, dim, correction_or_one(correction), is_root, keepdim, \
                                      out);                                                                \
  }
OPSMITH_VARIANCE(var, kVar, false)
OPSMITH_VARIANCE(std, kStd, true)
#undef OPSMITH_VARIANCE

std::tuple<Tensor&, Tensor&> var_mean_correction_out(KernelRuntimeContext& context, const Tensor& self,
                                                     OptionalArrayRef<int64_t> dim,
                                                     const std::optional<Scalar>& correction, bool keepdim,
                                                     Tensor& out0, Tensor& out1) {
  DimSet dims = 0;
  if (is_floating_point(context, self) && can_store(context, self.scalar_type(), out0) &&
      out_is(context, out0.scalar_type(), out1) && reduced_dims(context, self, dim, dims) &&
      resize_to_reduced(context, out0, self, dims, keepdim) &&
      resize_to_reduced(context, out1, self, dims, keepdim)) {
    with_compute_dtype<kVarMean>(context, Floating{}, self.scalar_type(), [&](auto type) {
      const Variance<typename decltype(type)::type> policy{correction_or_one(correction), false};
      reduce(context, policy, self, dims, keepdim, false, out0, out1);
    });
  }
  return {out0, out1};
}

}  // namespace opsmith::portable::native
