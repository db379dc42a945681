// Reductions of dense Tensors of any dim order over any dimensions, in threads. A kernel gives a policy,
// which says what is kept of the elements met so far; everything else is compiled once for the library:
//
//   using Element          the compute type in which elements are loaded
//   using State            what is kept for one result: trivially copyable, at most kMaxState bytes
//   using Results          std::tuple of the compute types of the results, of which the first are asked for
//   State start() const                                        of no element
//   void row(State&, const Element*, int64_t n, int64_t position) const    n elements of one result follow
//   void element(State&, Element, int64_t position) const      one element follows
//   void merge(State&, const State& later) const               the elements of `later` follow
//   Results finish(const State&) const
//
// `position` counts the elements of one result: in memory's order, or in the operand's logical order where
// the reduction is `ordered`.
#pragma once

#include "iteration.h"

#include <algorithm>

namespace opsmith::portable {

// A contiguous Tensor around one dimension: element k of a slice is at (outer * length + k) * inner + i.
struct Slices {
  int64_t outer;
  int64_t length;
  int64_t inner;
};
Slices slices_along(const Tensor& contiguous, int dim);

namespace detail {

inline constexpr int kMaxResults = 2;
inline constexpr size_t kMaxState = 32;
inline constexpr int64_t kColumns = 256;  // results that are reduced side by side

// A policy as functions over `n` states, one after the other.
struct Reducer {
  const void* policy;
  size_t state_size;
  ScalarType element;
  int results;
  ScalarType result[kMaxResults];
  void (*start)(const void* policy, void* states, int64_t n);
  void (*row)(const void* policy, void* state, const void* elements, int64_t n, int64_t position);
  void (*columns)(const void* policy, void* states, const void* elements, int64_t n, int64_t position);
  void (*merge)(const void* policy, void* state, const void* later);
  void (*finish)(const void* policy, const void* states, int64_t n, void* const* results);
};

bool reduce(KernelRuntimeContext& context, const Reducer& reducer, const Tensor& self, DimSet reduced,
            bool keepdim, bool ordered, Tensor* const* outs);

template <class P, class Results = typename P::Results>
struct Reducing;

template <class P, class... R>
struct Reducing<P, std::tuple<R...>> {
  using State = typename P::State;
  using Element = typename P::Element;
  static_assert(sizeof(State) <= kMaxState && sizeof...(R) <= kMaxResults);

  static Reducer reducer(const P& policy, size_t results) {
    return {&policy,
            sizeof(State),
            dtype_of<Element>,
            static_cast<int>(results),
            {dtype_of<R>...},
            &start,
            &row,
            &columns,
            &merge,
            &finish};
  }
  static const P& policy(const void* p) { return *static_cast<const P*>(p); }
  static void start(const void* p, void* states, int64_t n) {
    std::fill_n(static_cast<State*>(states), n, policy(p).start());
  }
  static void row(const void* p, void* state, const void* elements, int64_t n, int64_t position) {
    policy(p).row(*static_cast<State*>(state), static_cast<const Element*>(elements), n, position);
  }
  static void columns(const void* p, void* states, const void* elements, int64_t n, int64_t position) {
    const P own = policy(p);
    State* const state = static_cast<State*>(states);
    const Element* const element = static_cast<const Element*>(elements);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      own.element(state[k], load_element(element + k), position);
    }
  }
  static void merge(const void* p, void* state, const void* later) {
    policy(p).merge(*static_cast<State*>(state), *static_cast<const State*>(later));
  }
  static void finish(const void* p, const void* states, int64_t n, void* const* results) {
    for (int64_t k = 0; k < n; ++k) {
      put(policy(p).finish(static_cast<const State*>(states)[k]), results, k,
          std::index_sequence_for<R...>{});
    }
  }
  template <size_t... I>
  static void put(const std::tuple<R...>& values, void* const* results, int64_t k,
                  std::index_sequence<I...>) {
    ((static_cast<R*>(results[I])[k] = std::get<I>(values)), ...);
  }
};

}  // namespace detail

// Reduces `self` over the dimensions into the outs, which have their shape; results are converted to the
// outs' dtypes. False, with the call rejected, where a conversion was not selected.
template <class P, class... Outs>
bool reduce(KernelRuntimeContext& context, const P& policy, const Tensor& self, DimSet reduced, bool keepdim,
            bool ordered, Outs&... outs) {
  static_assert(sizeof...(Outs) <= std::tuple_size_v<typename P::Results>);
  Tensor* const results[] = {&outs...};
  return detail::reduce(context, detail::Reducing<P>::reducer(policy, sizeof...(Outs)), self, reduced,
                        keepdim, ordered, results);
}

}  // namespace opsmith::portable
