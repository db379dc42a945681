// Whole bodies of pointwise kernels: common dtype, dim order, resize, compute. A kernel says which dtypes it
// takes, in which dtype it calculates and what it does to one element:
//
//   unary<kName>(context, Floating{}, dtype, self, out, [](auto a) { return std::sqrt(a); });
//   binary<kName>(context, Real{}, dtype, self, other, out, [](auto a, auto b) { return a * b; });
//
// or, where numbers go with the elements, a function from Type<C> to that, which converts them once
// (unary_of, binary_of, ternary_of). `exact` is Rounding's. Results have the dtype `dtype`, or are truth
// values (predicate).
#pragma once

#include "common_dtype.h"
#include "iteration.h"
#include "scalar_tensor.h"

namespace opsmith::portable {

// f, with its result in the compute type C. A type of its own, which knows no operator's name: operators that
// share a function share its loops.
template <class C, class F>
struct Applied {
  F f;
  template <class... A>
  C operator()(A... a) const {
    return static_cast<C>(f(a...));
  }
};

template <const char* Name, class Dtypes, class Make>
Tensor& unary_of(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self,
                 Tensor& out, const Make& make) {
  OPSMITH_CHECK(context, contains(RealB{}, self.scalar_type()), NotSupported, out,
                "\"%s\" not implemented for '%s'", Name, name_of(self.scalar_type()));
  if (can_store(context, dtype, out) && resize_like(context, out, self) &&
      one_dim_order(context, {&out, &self})) {
    with_compute_dtype<Name>(context, dtypes, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<C(C)>(context, out, make(type), self);
    });
  }
  return out;
}

template <const char* Name, class Dtypes, class F>
Tensor& unary(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self, Tensor& out,
              const F& f) {
  return unary_of<Name>(context, dtypes, dtype, self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return Applied<C, F>{f};
  });
}

template <const char* Name, class Dtypes, class Make>
Tensor& binary_of(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self,
                  const Tensor& other, Tensor& out, const Make& make, int exact = 0) {
  if (can_store(context, dtype, out) && resize_to_broadcast(context, out, {&self, &other}) &&
      one_dim_order(context, {&out, &self, &other})) {
    with_compute_dtype<Name>(context, dtypes, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<C(C, C)>(context, {dtype, exact}, out, make(type), self, other);
    });
  }
  return out;
}

template <const char* Name, class Dtypes, class F>
Tensor& binary(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self,
               const Tensor& other, Tensor& out, const F& f, int exact = 0) {
  return binary_of<Name>(
      context, dtypes, dtype, self, other, out,
      [&](auto type) {
        using C = typename decltype(type)::type;
        return Applied<C, F>{f};
      },
      exact);
}

template <const char* Name, class Dtypes, class Make>
Tensor& ternary_of(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& a,
                   const Tensor& b, const Tensor& c, Tensor& out, const Make& make, int exact = 0) {
  if (can_store(context, dtype, out) && resize_to_broadcast(context, out, {&a, &b, &c}) &&
      one_dim_order(context, {&out, &a, &b, &c})) {
    with_compute_dtype<Name>(context, dtypes, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<C(C, C, C)>(context, {dtype, exact}, out, make(type), a, b, c);
    });
  }
  return out;
}

// out = f(a, b), a truth value, for operands that are compared in the dtype.
template <const char* Name, class Dtypes, class F>
Tensor& predicate(KernelRuntimeContext& context, Dtypes dtypes, ScalarType dtype, const Tensor& self,
                  const Tensor& other, Tensor& out, const F& f) {
  if (resize_to_broadcast(context, out, {&self, &other}) && one_dim_order(context, {&out, &self, &other})) {
    with_compute_dtype<Name>(context, dtypes, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      pointwise<bool(C, C)>(context, {dtype}, out, Applied<bool, F>{f}, self, other);
    });
  }
  return out;
}

}  // namespace opsmith::portable

// An operator on two Tensors, and on a Tensor and a number, by their functions and their names in manifests.
#define OPSMITH_TWO_OPERANDS(body, Dtypes, tensor_out, tensor_name, number_out, number_name, function)      \
  Tensor& tensor_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) { \
    static constexpr char kName[] = tensor_name;                                                            \
    return body<kName>(context, Dtypes{}, common_dtype(self, other), self, other, out, function);           \
  }                                                                                                         \
  Tensor& number_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& other, Tensor& out) { \
    static constexpr char kName[] = number_name;                                                            \
    const ScalarType dtype = common_dtype(self, other);                                                     \
    return body<kName>(context, Dtypes{}, dtype, self, ScalarTensor(other, dtype), out, function);          \
  }

// The same of an operator that C++ has a symbol for.
#define OPSMITH_SYMBOL(body, Dtypes, name, symbol)                                       \
  namespace {                                                                            \
  constexpr auto name##_values = [](auto a, auto b) { return a symbol b; };              \
  }                                                                                      \
  OPSMITH_TWO_OPERANDS(body, Dtypes, name##_out, #name ".Tensor_out", name##_scalar_out, \
                       #name ".Scalar_out", name##_values)
