// Sums, means and products. Elements are converted to the result's arithmetic as they are read.
#include "reduce.h"

#include <optional>
#include <type_traits>

#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>

namespace opsmith::hosted {
namespace {

// Wide is double for float: see Note [Accuracy of sums].
template <class N>
struct Sum {
  using Narrow = N;
  using Wide = std::conditional_t<std::is_same_v<N, float>, double, N>;
  template <class T>
  static Narrow element(const T* p) {
    return static_cast<Narrow>(load_element(p));
  }
  static constexpr Narrow start() { return 0; }
  template <class V>
  static V combine(V a, V b) {
    return a + b;
  }
};

template <class N>
struct Product {
  using Narrow = N;
  using Wide = N;
  template <class T>
  static Narrow element(const T* p) {
    return static_cast<Narrow>(load_element(p));
  }
  static constexpr Narrow start() { return 1; }
  static Narrow combine(Narrow a, Narrow b) { return a * b; }
};

// The operand's types that are added and multiplied in the type N without a conversion beforehand.
template <class N>
struct ReadAs;
template <>
struct ReadAs<float> {
  using type = Types<float, c10::BFloat16, c10::Half>;
};
template <>
struct ReadAs<double> {
  using type = Types<double, float>;
};
template <>
struct ReadAs<int64_t> {
  using type = Types<int64_t, int32_t, int16_t, int8_t, uint8_t, bool>;
};

template <class... T>
bool contains(Types<T...>, at::ScalarType dtype) {
  return ((dtype == c10::CppTypeToScalarType<T>::value) || ...);
}

// Reduces into `out` with the arithmetic of its dtype; each value goes through `finish` last. False, with
// nothing done, for the pairs of dtypes that are not compiled.
template <template <class> class Policy, class Finish>
bool accumulate(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, const at::Tensor& out,
                const Finish& finish) {
  const auto in_type = [&]<class N, class O>() {
    if (!contains(typename ReadAs<N>::type{}, self.scalar_type())) {
      return false;
    }
    O* const result = host_data<O>(out);
    const auto write = [&](int64_t offset, typename Policy<N>::Wide total) {
      store_element(result + offset, static_cast<compute_t<O>>(finish(total)));
    };
    const Reduction r(self, dim, keepdim, out);
    with_dtype(typename ReadAs<N>::type{}, self.scalar_type(),
               [&]<class T>() { reduce<Policy<N>>(r, host_data<const T>(self), write); });
    return true;
  };
  switch (out.scalar_type()) {
    case at::kFloat:
      return in_type.template operator()<float, float>();
    case at::kBFloat16:
      return in_type.template operator()<float, c10::BFloat16>();
    case at::kHalf:
      return in_type.template operator()<float, c10::Half>();
    case at::kDouble:
      return in_type.template operator()<double, double>();
    case at::kLong:
      return in_type.template operator()<int64_t, int64_t>();
    case at::kInt:
      return in_type.template operator()<int64_t, int32_t>();
    // Integers wrap, so that it does not matter when they are cut off.
    case at::kShort:
      return in_type.template operator()<int64_t, int16_t>();
    case at::kChar:
      return in_type.template operator()<int64_t, int8_t>();
    case at::kByte:
      return in_type.template operator()<int64_t, uint8_t>();
    case at::kBool:
      return self.scalar_type() == at::kBool && in_type.template operator()<int64_t, bool>();
    default:
      return false;
  }
}

}  // namespace

void sum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType>,
         const at::Tensor& out) {
  const auto unchanged = [](auto total) { return total; };
  if (!accumulate<Sum>(self, dim, keepdim, out, unchanged)) {
    // Once the operand has the result's dtype, the operator takes the route that the plan gives to that
    // dtype.
    at::sum_out(const_cast<at::Tensor&>(out), self.to(out.scalar_type()), dim, keepdim);
  }
}

void mean(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType>,
          const at::Tensor& out) {
  const double count = static_cast<double>(Reduction(self, dim, keepdim, out).length);
  const auto divided = [count](auto total) { return static_cast<double>(total) / count; };
  if (!accumulate<Sum>(self, dim, keepdim, out, divided)) {
    at::mean_out(const_cast<at::Tensor&>(out), self.to(out.scalar_type()), dim, keepdim);
  }
}

void prod_dim(const at::Tensor& self, int64_t dim, bool keepdim, std::optional<at::ScalarType>,
              const at::Tensor& out) {
  const auto unchanged = [](auto total) { return total; };
  if (!accumulate<Product>(self, dim, keepdim, out, unchanged)) {
    at::prod_out(const_cast<at::Tensor&>(out), self.to(out.scalar_type()), dim, keepdim);
  }
}

}  // namespace opsmith::hosted
