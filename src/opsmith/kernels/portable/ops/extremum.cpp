// The largest and smallest elements, and where they stand. NaN counts as larger and as smaller than any
// number; of several that are equal, the first is taken.
#include "../common_dtype.h"
#include "../elementary_functions.h"
#include "../reducer.h"

#include <limits>

namespace opsmith::portable::native {
namespace {

using executorch::aten::ArrayRef;
using executorch::aten::OptionalArrayRef;

constexpr char kAmax[] = "amax.out";
constexpr char kAmin[] = "amin.out";
constexpr char kMax[] = "max.unary_out";
constexpr char kMin[] = "min.unary_out";
constexpr char kMaxDim[] = "max.dim_max";
constexpr char kMinDim[] = "min.dim_min";
constexpr char kArgmax[] = "argmax.out";
constexpr char kArgmin[] = "argmin.out";

struct Max {
  template <class C>
  static constexpr C least() {
    return std::numeric_limits<C>::has_infinity ? static_cast<C>(-std::numeric_limits<C>::infinity())
                                                : std::numeric_limits<C>::lowest();
  }
  template <class C>
  static C better(C a, C b) {
    return portable::maximum(a, b);
  }
  template <class C>
  static bool beats(C challenger, C held) {
    return (challenger > held) | ((challenger != challenger) & (held == held));
  }
};

struct Min {
  template <class C>
  static constexpr C least() {
    return std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity()
                                                : std::numeric_limits<C>::max();
  }
  template <class C>
  static C better(C a, C b) {
    return portable::minimum(a, b);
  }
  template <class C>
  static bool beats(C challenger, C held) {
    return (challenger < held) | ((challenger != challenger) & (held == held));
  }
};

template <class Order, class C>
struct Extremum {
  using Element = C;
  using State = C;
  using Results = std::tuple<C>;
  static constexpr int64_t kLanes = 32;

  State start() const { return Order::template least<C>(); }
  void row(State& state, const C* p, int64_t n, int64_t) const {
    int64_t k = 0;
    if (n >= kLanes) {
      C lanes[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) {
        lanes[l] = load_element(p + l);
      }
      for (k = kLanes; k + kLanes <= n; k += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
          lanes[l] = Order::better(lanes[l], load_element(p + k + l));
        }
      }
      for (const C lane : lanes) {
        state = Order::better(state, lane);
      }
    }
    for (; k < n; ++k) {
      state = Order::better(state, load_element(p + k));
    }
  }
  void element(State& state, C value, int64_t) const { state = Order::better(state, value); }
  void merge(State& state, const State& later) const { state = Order::better(state, later); }
  Results finish(const State& state) const { return {state}; }
};

template <class C>
struct Found {
  int64_t position;  // -1: no element was met
  C value;
};

template <class Order, class C>
struct Position {
  using Element = C;
  using State = Found<C>;
  using Results = std::tuple<int64_t, C>;

  State start() const { return {-1, C(0)}; }
  void row(State& state, const C* p, int64_t n, int64_t position) const {
    for (int64_t k = 0; k < n; ++k) {
      element(state, load_element(p + k), position + k);
    }
  }
  void element(State& state, C value, int64_t position) const {
    const bool taken = (state.position < 0) | Order::beats(value, state.value);
    state.position = taken ? position : state.position;
    state.value = taken ? value : state.value;
  }
  void merge(State& state, const State& later) const {
    if (later.position >= 0) {
      element(state, later.value, later.position);
    }
  }
  Results finish(const State& state) const { return {state.position, state.value}; }
};

// Where nothing is reduced into nothing, there is nothing to be the largest of.
bool has_elements(KernelRuntimeContext& context, const char* name, const Tensor& self, DimSet dims,
                  const Tensor& out) {
  if (reduced_length(self, dims) > 0 || out.numel() == 0) {
    return true;
  }
  for (int d = 0; d < static_cast<int>(self.dim()); ++d) {
    OPSMITH_CHECK(context, !contains(dims, d) || self.sizes()[static_cast<size_t>(d)] != 0, InvalidArgument,
                  false, "%s(): Expected reduction dim %d to have non-zero size.", name, d);
  }
  return true;
}

template <const char* Name, template <class, class> class Policy, class Order, class Dtypes>
Tensor& over_dims(KernelRuntimeContext& context, const char* name, Dtypes dtypes, const Tensor& self,
                  const OptionalArrayRef<int64_t>& dim, bool keepdim, bool ordered, Tensor& out) {
  DimSet dims = 0;
  if (reduced_dims(context, self, dim, dims) && resize_to_reduced(context, out, self, dims, keepdim) &&
      has_elements(context, name, self, dims, out)) {
    with_compute_dtype<Name>(context, dtypes, self.scalar_type(), [&](auto type) {
      reduce(context, Policy<Order, typename decltype(type)::type>{}, self, dims, keepdim, ordered, out);
    });
  }
  return out;
}

template <const char* Name, class Order>
Tensor& extremum(KernelRuntimeContext& context, const char* name, const Tensor& self,
                 const OptionalArrayRef<int64_t>& dim, bool keepdim, Tensor& out) {
  return out_is(context, self.scalar_type(), out)
             ? over_dims<Name, Extremum, Order>(context, name, RealB{}, self, dim, keepdim, false, out)
             : out;
}

// In ExecuTorch the largest of no element is what is smaller than any, and not an error.
template <const char* Name, class Order>
Tensor& extremum_of_all(KernelRuntimeContext& context, const char* name, const Tensor& self, Tensor& out) {
  if (!can_store(context, self.scalar_type(), out) || !resize(context, out, {}) ||
      (!in_executorch() && !has_elements(context, name, self, every_dim(self), out))) {
    return out;
  }
  with_compute_dtype<Name>(context, RealB{}, self.scalar_type(), [&](auto type) {
    reduce(context, Extremum<Order, typename decltype(type)::type>{}, self, every_dim(self), false, false,
           out);
  });
  return out;
}

template <const char* Name, class Order>
Tensor& argument(KernelRuntimeContext& context, const char* name, const Tensor& self,
                 std::optional<int64_t> dim, bool keepdim, Tensor& out) {
  const OptionalArrayRef<int64_t> given =
      dim.has_value() ? OptionalArrayRef<int64_t>(ArrayRef<int64_t>(*dim)) : std::nullopt;
  return out_is(context, ScalarType::Long, out)
             ? over_dims<Name, Position, Order>(context, name, Real{}, self, given, keepdim, true, out)
             : out;
}

template <const char* Name, class Order>
std::tuple<Tensor&, Tensor&> value_and_argument(KernelRuntimeContext& context, const char* name,
                                                const Tensor& self, int64_t dim, bool keepdim, Tensor& value,
                                                Tensor& index) {
  DimSet dims = 0;
  if (out_is(context, self.scalar_type(), value) && out_is(context, ScalarType::Long, index) &&
      reduced_dim(context, self, dim, dims) && have_one_shape(context, value, index) &&
      resize_to_reduced(context, value, self, dims, keepdim) &&
      resize_to_reduced(context, index, self, dims, keepdim) &&
      has_elements(context, name, self, dims, value)) {
    with_compute_dtype<Name>(context, RealB{}, self.scalar_type(), [&](auto type) {
      reduce(context, Position<Order, typename decltype(type)::type>{}, self, dims, keepdim, true, index,
             value);
    });
  }
  return {value, index};
}

}  // namespace

Tensor& amax_out(KernelRuntimeContext& context, const Tensor& self, ArrayRef<int64_t> dim, bool keepdim,
                 Tensor& out) {
  return extremum<kAmax, Max>(context, "amax", self, dim, keepdim, out);
}

Tensor& amin_out(KernelRuntimeContext& context, const Tensor& self, ArrayRef<int64_t> dim, bool keepdim,
                 Tensor& out) {
  return extremum<kAmin, Min>(context, "amin", self, dim, keepdim, out);
}

Tensor& max_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return extremum_of_all<kMax, Max>(context, "max", self, out);
}

Tensor& min_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return extremum_of_all<kMin, Min>(context, "min", self, out);
}

std::tuple<Tensor&, Tensor&> max_dim_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                                         bool keepdim, Tensor& max, Tensor& max_values) {
  return value_and_argument<kMaxDim, Max>(context, "max", self, dim, keepdim, max, max_values);
}

std::tuple<Tensor&, Tensor&> min_dim_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                                         bool keepdim, Tensor& min, Tensor& min_indices) {
  return value_and_argument<kMinDim, Min>(context, "min", self, dim, keepdim, min, min_indices);
}

Tensor& argmax_out(KernelRuntimeContext& context, const Tensor& self, std::optional<int64_t> dim,
                   bool keepdim, Tensor& out) {
  return argument<kArgmax, Max>(context, "argmax", self, dim, keepdim, out);
}

Tensor& argmin_out(KernelRuntimeContext& context, const Tensor& self, std::optional<int64_t> dim,
                   bool keepdim, Tensor& out) {
  return argument<kArgmin, Min>(context, "argmin", self, dim, keepdim, out);
}

}  // namespace opsmith::portable::native
