// Element-by-element host kernels over a TensorIterator on device memory: pointwise<Result(Args...)>(iter, f)
// and the shorthands unary, binary, ternary and predicate. The iterator threads through libtorch's pool;
// operands are translated to host addresses here, once each, so a kernel never meets a device pointer.
#pragma once

#include <opsmith/element_types.h>
#include <opsmith/on_host.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <c10/util/SmallVector.h>

namespace opsmith {
namespace detail {

inline constexpr int kEveryOperandDense = -1;

// One row whose elements lie next to each other, but for the operand `Repeated`, which is one element for the
// whole row. The forms are separate because gcc vectorises only loops whose strides it knows.
template <int Repeated, class Result, class... Args, class F, size_t... I>
void dense_row(char* const* data, int64_t n, const F& f, std::index_sequence<I...>) {
  Result* const out = reinterpret_cast<Result*>(data[0]);
  const std::tuple<const Args*...> in{reinterpret_cast<const Args*>(data[I + 1])...};
  const std::tuple<compute_t<Args>...> first{load_element(std::get<I>(in))...};
  [[maybe_unused]] const auto at = [&]<size_t J>(int64_t k, std::integral_constant<size_t, J>) {
    return Repeated == static_cast<int>(J) ? std::get<J>(first) : load_element(std::get<J>(in) + k);
  };
  // ivdep: in-place calls read and write the very same elements, which is no dependence between iterations.
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    store_element(out + k, f(at(k, std::integral_constant<size_t, I>{})...));
  }
}

template <class Result, class... Args, class F, size_t... I>
void strided_row(char* const* data, const int64_t* strides, int64_t n, const F& f,
                 std::index_sequence<I...>) {
  for (int64_t k = 0; k < n; ++k) {
    store_element(reinterpret_cast<Result*>(data[0] + k * strides[0]),
                  f(load_element(reinterpret_cast<const Args*>(data[I + 1] + k * strides[I + 1]))...));
  }
}

// The loop over an iterator's elements, at the addresses of the host; it does not keep the operands' memory.
class HostLoop {
 public:
  explicit HostLoop(at::TensorIteratorBase& iter)
      : shape_(iter.shape()), strides_(iter.get_strides()), numel_(iter.numel()) {
    for (int i = 0; i < iter.ntensors(); ++i) {
      bases_.push_back(static_cast<char*>(host_pointer(iter.data_ptr(i))));
    }
  }

  void for_each(at::TensorIteratorBase::loop2d_t loop) const {
    at::parallel_for(0, numel_, at::internal::GRAIN_SIZE,
                     [&](int64_t begin, int64_t end) { part(loop, begin, end); });
  }

 private:
  // Elements begin..end-1, the first dimension running fastest; as many rows at a time as there are.
  void part(at::TensorIteratorBase::loop2d_t loop, int64_t begin, int64_t end) const {
    const int64_t length = shape_.empty() ? 1 : shape_[0];
    const int64_t height = shape_.size() < 2 ? 1 : shape_[1];
    for (int64_t at = begin; at < end;) {
      auto pointers = bases_;
      int64_t left = at;
      for (size_t dim = 0; dim < shape_.size(); ++dim) {
        for (size_t i = 0; i < pointers.size(); ++i) {
          pointers[i] += left % shape_[dim] * strides_[dim * pointers.size() + i];
        }
        left /= shape_[dim];
      }
      const int64_t columns = std::min(length - at % length, end - at);
      const int64_t rows =
          columns < length ? 1 : std::min(height - at / length % height, (end - at) / length);
      loop(pointers.data(), strides_.data(), columns, rows);
      at += columns * rows;
    }
  }

  c10::SmallVector<int64_t, 6> shape_;
  c10::SmallVector<int64_t, 12> strides_;  // at least two dimensions of each operand
  c10::SmallVector<char*, 4> bases_;
  int64_t numel_;
};

template <class Signature>
struct Pointwise;

template <class Result, class... Args>
struct Pointwise<Result(Args...)> {
  static constexpr size_t kOperands = sizeof...(Args) + 1;
  using Pointers = std::array<char*, kOperands>;

  // kEveryOperandDense, the number of the one repeated input, or anything else for rows of other strides.
  static int repeated_input(const int64_t* strides) {
    constexpr std::array<int64_t, kOperands> sizes{sizeof(Result), sizeof(Args)...};
    int repeated = kEveryOperandDense;
    for (size_t i = 0; i < kOperands; ++i) {
      if (strides[i] == sizes[i]) {
        continue;
      }
      if (i == 0 || strides[i] != 0 || repeated != kEveryOperandDense) {
        return static_cast<int>(kOperands);
      }
      repeated = static_cast<int>(i) - 1;
    }
    return repeated;
  }

  template <class F>
  static void row(int repeated, const Pointers& data, const int64_t* strides, int64_t n, const F& f) {
    constexpr auto inputs = std::index_sequence_for<Args...>{};
    if (repeated == kEveryOperandDense) {
      return dense_row<kEveryOperandDense, Result, Args...>(data.data(), n, f, inputs);
    }
    if constexpr (sizeof...(Args) == 2) {
      if (repeated == 0) {
        return dense_row<0, Result, Args...>(data.data(), n, f, inputs);
      }
      if (repeated == 1) {
        return dense_row<1, Result, Args...>(data.data(), n, f, inputs);
      }
    }
    strided_row<Result, Args...>(data.data(), strides, n, f, inputs);
  }
};

}  // namespace detail

// out[i] = f(in[i]...) for every element, where `iter` has one output of element type Result and inputs of
// element types Args. f takes and returns compute types (float for Half and BFloat16) and must be safe to
// call from several threads at once; what it throws comes out of here.
template <class Signature, class F>
void pointwise(at::TensorIteratorBase& iter, const F& f,
               const std::source_location kernel = std::source_location::current()) {
  using P = detail::Pointwise<Signature>;
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(iter.ntensors() == static_cast<int>(P::kOperands));
  if (iter.numel() == 0) {
    return;
  }
  const auto rows_of = [f](char** base, const int64_t* strides, int64_t n, int64_t rows) {
    typename P::Pointers data;
    std::copy_n(base, P::kOperands, data.begin());
    const int repeated = P::repeated_input(strides);
    for (int64_t r = 0; r < rows; ++r) {
      P::row(repeated, data, strides, n, f);
      for (size_t i = 0; i < P::kOperands; ++i) {
        data[i] += strides[P::kOperands + i];
      }
    }
  };
  on_host(kernel.function_name(), [loop = detail::HostLoop(iter), rows_of] { loop.for_each(rows_of); });
}

// The shorthands. `make.operator()<C>()` returns the function for the compute type C; operands all have one
// dtype, which is among `Dtypes`.
template <class Dtypes, class Make>
void unary(at::TensorIteratorBase& iter, const Make& make,
           const std::source_location kernel = std::source_location::current()) {
  with_dtype(
      Dtypes{}, iter.dtype(1),
      [&]<class T>() { pointwise<T(T)>(iter, make.template operator()<compute_t<T>>(), kernel); }, kernel);
}

template <class Dtypes, class Make>
void binary(at::TensorIteratorBase& iter, const Make& make,
            const std::source_location kernel = std::source_location::current()) {
  with_dtype(
      Dtypes{}, iter.dtype(1),
      [&]<class T>() { pointwise<T(T, T)>(iter, make.template operator()<compute_t<T>>(), kernel); }, kernel);
}

template <class Dtypes, class Make>
void ternary(at::TensorIteratorBase& iter, const Make& make,
             const std::source_location kernel = std::source_location::current()) {
  with_dtype(
      Dtypes{}, iter.dtype(1),
      [&]<class T>() { pointwise<T(T, T, T)>(iter, make.template operator()<compute_t<T>>(), kernel); },
      kernel);
}

// Two operands and a truth value: the output is Bool or, when called in place, has the operands' dtype.
template <class Dtypes, class Make>
void predicate(at::TensorIteratorBase& iter, const Make& make,
               const std::source_location kernel = std::source_location::current()) {
  with_dtype(
      Dtypes{}, iter.dtype(1),
      [&]<class T>() {
        const auto f = make.template operator()<compute_t<T>>();
        if (iter.dtype(0) == at::kBool) {
          pointwise<bool(T, T)>(iter, f, kernel);
        } else {
          pointwise<T(T, T)>(
              iter, [f](auto a, auto b) { return static_cast<compute_t<T>>(f(a, b)); }, kernel);
        }
      },
      kernel);
}

}  // namespace opsmith
