// The largest and smallest elements, and where they stand. NaN counts as larger and as smaller than any
// number; of several that are equal, the first is taken.
#include "../../common/extremum.h"
#include "../common_dtype.h"
#include "../elementary_functions.h"
#include "../reducer.h"

#include <limits>

namespace opsmith::portable::native {
namespace {

// Of the largest elements, or of the smallest: what is better than none, and of two values.
template <bool kIsLargest>
struct Order {
  template <class C>
  static constexpr C least() {
    using Limits = std::numeric_limits<C>;
    if constexpr (Limits::has_infinity) {
      return static_cast<C>(kIsLargest ? -Limits::infinity() : Limits::infinity());
    }
    return kIsLargest ? Limits::lowest() : Limits::max();
  }
  template <class C>
  static C better(C a, C b) {
    return kIsLargest ? portable::maximum(a, b) : portable::minimum(a, b);
  }
  template <class C>
  static bool beats(C challenger, C held) {
    return (kIsLargest ? challenger > held : challenger < held) |
           ((challenger != challenger) & (held == held));
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

template <const char* Name, template <class, class> class Policy, bool kIsLargest, class Dtypes>
Tensor& over_dims(KernelRuntimeContext& context, const char* name, Dtypes dtypes, const Tensor& self,
                  const OptionalArrayRef<int64_t>& dim, bool keepdim, bool ordered, Tensor& out) {
  DimSet dims = 0;
  if (reduced_dims(context, self, dim, dims) && resize_to_reduced(context, out, self, dims, keepdim) &&
      has_extremum(context, name, self, dims, out)) {
    with_compute_dtype<Name>(context, dtypes, self.scalar_type(), [&](auto type) {
      reduce(context, Policy<Order<kIsLargest>, typename decltype(type)::type>{}, self, dims, keepdim,
             ordered, out);
    });
  }
  return out;
}

template <const char* Name, bool kIsLargest>
Tensor& extremum(KernelRuntimeContext& context, const char* name, const Tensor& self,
                 const OptionalArrayRef<int64_t>& dim, bool keepdim, Tensor& out) {
  return out_is(context, self.scalar_type(), out)
             ? over_dims<Name, Extremum, kIsLargest>(context, name, RealB{}, self, dim, keepdim, false, out)
             : out;
}

// In ExecuTorch the largest of no element is what is smaller than any, and not an error.
template <const char* Name, bool kIsLargest>
Tensor& extremum_of_all(KernelRuntimeContext& context, const char* name, const Tensor& self, Tensor& out) {
  if (!can_store(context, self.scalar_type(), out) || !resize(context, out, {}) ||
      (!in_executorch() && !has_extremum(context, name, self, every_dim(self), out))) {
    return out;
  }
  with_compute_dtype<Name>(context, RealB{}, self.scalar_type(), [&](auto type) {
    reduce(context, Extremum<Order<kIsLargest>, typename decltype(type)::type>{}, self, every_dim(self),
           false, false, out);
  });
  return out;
}

template <const char* Name, bool kIsLargest>
Tensor& place(KernelRuntimeContext& context, const char* name, const Tensor& self, std::optional<int64_t> dim,
              bool keepdim, Tensor& out) {
  const OptionalArrayRef<int64_t> given =
      dim.has_value() ? OptionalArrayRef<int64_t>(ArrayRef<int64_t>(*dim)) : std::nullopt;
  return out_is(context, ScalarType::Long, out)
             ? over_dims<Name, Position, kIsLargest>(context, name, Real{}, self, given, keepdim, true, out)
             : out;
}

template <const char* Name, bool kIsLargest>
std::tuple<Tensor&, Tensor&> value_and_place(KernelRuntimeContext& context, const char* name,
                                             const Tensor& self, int64_t dim, bool keepdim, Tensor& value,
                                             Tensor& index) {
  DimSet dims = 0;
  if (out_is(context, self.scalar_type(), value) && out_is(context, ScalarType::Long, index) &&
      reduced_dim(context, self, dim, dims) && have_one_shape(context, value, index) &&
      resize_to_reduced(context, value, self, dims, keepdim) &&
      resize_to_reduced(context, index, self, dims, keepdim) &&
      has_extremum(context, name, self, dims, value)) {
    with_compute_dtype<Name>(context, RealB{}, self.scalar_type(), [&](auto type) {
      reduce(context, Position<Order<kIsLargest>, typename decltype(type)::type>{}, self, dims, keepdim, true,
             index, value);
    });
  }
  return {value, index};
}

}  // namespace

OPSMITH_EXTREMUM_OPERATORS(max, Max, true)
OPSMITH_EXTREMUM_OPERATORS(min, Min, false)

}  // namespace opsmith::portable::native
