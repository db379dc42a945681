// Sums and means. A sum is calculated in the dtype that it is asked for, to which elements are converted
// first.
#include "../common_dtype.h"
#include "../complex_numbers.h"
#include "../reducer.h"

#include <cmath>

namespace opsmith::portable::native {
namespace {

// Note [Accuracy of sums]
// Rows are added in kLanes interleaved partial sums in blocks, blocks and columns in a wider sum: double for
// float; for double, a pair whose second number is what rounding took from the first (Neumaier). The error is
// that of adding a block's kTile / kLanes numbers, however long the sum is: less than that of ATen's cascade.
constexpr int64_t kLanes = 32;

struct Wide {
  double total;
  double rest;  // what rounding has taken from the total

  void add(double value) {
    const double sum = total + value;
    const double taken = sum - total;
    rest += (total - (sum - taken)) + (value - taken);
    total = sum;
  }
  // Once the total is infinite or NaN, so is the rest, in its own way.
  double value() const { return std::isfinite(total) ? total + rest : total; }
};

template <class C>
struct Sum {
  using Element = C;
  using State = std::conditional_t<std::is_same_v<C, double>, Wide,
                                   std::conditional_t<std::is_same_v<C, float>, double, int64_t>>;
  using Block = std::conditional_t<std::is_same_v<C, bool>, int64_t, C>;
  using Results = std::tuple<C>;
  double divisor = 1;

  State start() const { return State{}; }

  static void add(State& state, Block value) {
    if constexpr (std::is_same_v<State, Wide>) {
      state.add(value);
    } else {
      state += static_cast<State>(value);
    }
  }

  void row(State& state, const C* p, int64_t n, int64_t) const {
    int64_t k = 0;
    for (; k + kLanes <= n; k += kTile) {
      Block lanes[kLanes] = {};
      const int64_t end = k + kTile <= n ? k + kTile : n - n % kLanes;
      for (int64_t j = k; j < end; j += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
          lanes[l] += static_cast<Block>(load_element(p + j + l));
        }
      }
      for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l < half; ++l) {
          lanes[l] += lanes[l + half];
        }
      }
      add(state, lanes[0]);
    }
    for (k = n - n % kLanes; k < n; ++k) {
      add(state, static_cast<Block>(load_element(p + k)));
    }
  }
  void element(State& state, C value, int64_t) const { add(state, static_cast<Block>(value)); }
  void merge(State& state, const State& later) const {
    if constexpr (std::is_same_v<State, Wide>) {
      state.add(later.total);
      state.rest += later.rest;
    } else {
      state += later;
    }
  }
  Results finish(const State& state) const {
    if constexpr (std::is_same_v<State, Wide>) {
      return {state.value() / divisor};
    } else if constexpr (std::is_same_v<C, float>) {
      return {static_cast<float>(state / divisor)};
    } else {
      return {convert_value<C>(state)};
    }
  }
};

// Integers of every width are added in int64: they wrap in the same way whenever they are cut off.
using Summed = Types<float, double, Half, BFloat16, int64_t, bool>;

ScalarType summed_dtype(ScalarType dtype) {
  return is_integral(dtype) ? ScalarType::Long : dtype;
}

constexpr char kSum[] = "sum.IntList_out";
constexpr char kSumAll[] = "sum.out";
constexpr char kMean[] = "mean.out";
constexpr char kMeanAll[] = "mean.dtype_out";

// Of complex numbers, whose parts are added each by itself.
template <const char* Name>
void complex_sum(KernelRuntimeContext& context, const Tensor& self, DimSet dims, bool keepdim, Tensor& out) {
  if (!are_of_one_complex_dtype(context, out, {&self}) || !have_parts(context, {&self})) {
    return;
  }
  Parts parts(self), sums(out);
  with_compute_dtype<Name>(context, Floating{}, part_of(out.scalar_type()), [&](auto type) {
    reduce(context, Sum<typename decltype(type)::type>{}, parts.tensor(), dims, keepdim, false,
           sums.tensor());
  });
}

template <const char* Name>
Tensor& sum(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
            bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  DimSet dims = 0;
  if (out_is(context, dtype.value_or(out.scalar_type()), out) && reduced_dims(context, self, dim, dims) &&
      resize_to_reduced(context, out, self, dims, keepdim)) {
    if (any_is_complex({&self, &out})) {
      complex_sum<Name>(context, self, dims, keepdim, out);
      return out;
    }
    with_compute_dtype<Name>(context, Summed{}, summed_dtype(out.scalar_type()), [&](auto type) {
      reduce(context, Sum<typename decltype(type)::type>{}, self, dims, keepdim, false, out);
    });
  }
  return out;
}

template <const char* Name>
Tensor& mean(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
             bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  const ScalarType result = dtype.value_or(self.scalar_type());
  OPSMITH_CHECK(
      context, is_floating(result), InvalidArgument, out,
      "mean(): could not infer output dtype. %s dtype must be either a floating point or complex dtype. "
      "Got: %s",
      dtype.has_value() ? "Optional" : "Input", name_of(result));
  OPSMITH_CHECK(context, is_floating(out.scalar_type()), InvalidArgument, out,
                "result type %s can't be cast to the desired output type %s", name_of(result),
                name_of(out.scalar_type()));
  DimSet dims = 0;
  if (out_is(context, dtype.value_or(out.scalar_type()), out) && reduced_dims(context, self, dim, dims) &&
      resize_to_reduced(context, out, self, dims, keepdim)) {
    with_compute_dtype<Name>(context, Floating{}, out.scalar_type(), [&](auto type) {
      Sum<typename decltype(type)::type> sum;
      sum.divisor = static_cast<double>(reduced_length(self, dims));
      reduce(context, sum, self, dims, keepdim, false, out);
    });
  }
  return out;
}

}  // namespace

Tensor& sum_dim_out(KernelRuntimeContext& context, const Tensor& self, OptionalArrayRef<int64_t> dim,
                    bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  return sum<kSum>(context, self, dim, keepdim, dtype, out);
}

Tensor& sum_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ScalarType> dtype,
                Tensor& out) {
  return sum<kSumAll>(context, self, std::nullopt, false, dtype, out);
}

Tensor& mean_dim_out(KernelRuntimeContext& context, const Tensor& self, OptionalArrayRef<int64_t> dim,
                     bool keepdim, std::optional<ScalarType> dtype, Tensor& out) {
  return mean<kMean>(context, self, dim, keepdim, dtype, out);
}

Tensor& mean_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ScalarType> dtype,
                 Tensor& out) {
  return mean<kMeanAll>(context, self, std::nullopt, false, dtype, out);
}

}  // namespace opsmith::portable::native
