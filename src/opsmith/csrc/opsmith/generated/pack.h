// Values of different types, built in place and in order. Every generated call holds one, so it is made of
// one base for each value, which calls share: std::tuple of the same types takes a class, constructors and
// get() for each of its suffixes, which was a quarter of what a registration compiles to.
//
//   Pack<Copy, const Given&> pack{{copy(tensor)}, {given}};
//   pack.apply([](Copy& copy, const Given& given) { … });
#pragma once

#include <cstddef>
#include <utility>

#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {

template <size_t kIndex, class Value>
struct PackedValue {
  Value value;
};

template <class Indices, class... Values>
struct PackedValues;

template <size_t... kIndices, class... Values>
struct PackedValues<std::index_sequence<kIndices...>, Values...> : PackedValue<kIndices, Values>... {
  // `call` with the values, as lvalues.
  template <class Call>
  C10_ALWAYS_INLINE decltype(auto) apply(const Call& call) {
    return call(static_cast<PackedValue<kIndices, Values>&>(*this).value...);
  }
};

}  // namespace detail

template <class... Values>
using Pack = detail::PackedValues<std::index_sequence_for<Values...>, Values...>;

}  // namespace opsmith
