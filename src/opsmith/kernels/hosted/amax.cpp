// The largest and the smallest element along dimensions, NaN if there is one.
#include "reduce.h"

namespace opsmith::hosted {
namespace {

template <class N>
struct Largest {
  using Narrow = N;
  using Wide = N;
  template <class T>
  static Narrow element(const T* p) {
    return static_cast<Narrow>(load_element(p));
  }
  static constexpr Narrow start() {
    using Limits = std::numeric_limits<N>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  static Narrow combine(Narrow a, Narrow b) { return ((a < b) | (b != b)) ? b : a; }
};

template <class N>
struct Smallest {
  using Narrow = N;
  using Wide = N;
  template <class T>
  static Narrow element(const T* p) {
    return static_cast<Narrow>(load_element(p));
  }
  static constexpr Narrow start() {
    using Limits = std::numeric_limits<N>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  static Narrow combine(Narrow a, Narrow b) { return ((b < a) | (b != b)) ? b : a; }
};

template <template <class> class Policy>
void extremum(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  const Reduction r(self, dim, keepdim, out);
  with_dtype(Numeric{}, self.scalar_type(), [&]<class T>() {
    T* const result = host_data<T>(out);
    const auto write = [&](int64_t offset, compute_t<T> value) { store_element(result + offset, value); };
    reduce<Policy<compute_t<T>>>(r, host_data<const T>(self), write);
  });
}

}  // namespace

void amax(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  extremum<Largest>(self, dim, keepdim, out);
}

void amin(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  extremum<Smallest>(self, dim, keepdim, out);
}

}  // namespace opsmith::hosted
