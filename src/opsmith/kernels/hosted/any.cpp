// Whether any or all elements are other than zero.
#include "reduce.h"

#include <optional>

namespace opsmith::hosted {
namespace {

// Truth values are bytes: a bool accumulator would keep gcc from vectorising. NaN is other than zero.
struct Any {
  using Narrow = uint8_t;
  using Wide = uint8_t;
  template <class T>
  static Narrow element(const T* p) {
    return load_element(p) != compute_t<T>(0);
  }
  static constexpr Narrow start() { return 0; }
  static Narrow combine(Narrow a, Narrow b) { return a | b; }
};

struct All {
  using Narrow = uint8_t;
  using Wide = uint8_t;
  template <class T>
  static Narrow element(const T* p) {
    return load_element(p) != compute_t<T>(0);
  }
  static constexpr Narrow start() { return 1; }
  static Narrow combine(Narrow a, Narrow b) { return a & b; }
};

// The result is Bool, but for Byte operands, whose result is Byte: ATen's meta has decided.
template <class Policy>
void truth(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, const at::Tensor& out) {
  const Reduction r(self, dim, keepdim, out);
  uint8_t* const result = static_cast<uint8_t*>(host_pointer(out.data_ptr()));
  TORCH_CHECK_NOT_IMPLEMENTED(out.element_size() == 1, "any and all have no result of dtype ",
                              out.scalar_type(), " on ", self.device(),
                              ". Pass an `out` of dtype torch.bool or torch.uint8");
  const auto write = [&](int64_t offset, uint8_t value) { result[offset] = value; };
  with_dtype(Real{}, self.scalar_type(),
             [&]<class T>() { reduce<Policy>(r, host_data<const T>(self), write); });
}

}  // namespace

void any_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& out) {
  truth<Any>(self, dim, keepdim, out);
}

void any(const at::Tensor& self, const at::Tensor& out) {
  truth<Any>(self, std::nullopt, false, out);
}

void all_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& out) {
  truth<All>(self, dim, keepdim, out);
}

void all(const at::Tensor& self, const at::Tensor& out) {
  truth<All>(self, std::nullopt, false, out);
}

}  // namespace opsmith::hosted
