// Complex numbers: their dtypes, Tensors of them as Tensors of their parts, and loops over them.
//
// Note [Complex operands]
// Kernels calculate with complex numbers in ExecuTorch's programs, where all Tensors of a call have one
// dtype; on devices the manifest leaves them to the fallback. What treats both parts alike (sums) runs the
// loops for real numbers over twice as many; ComplexHalf is calculated with as ComplexFloat, and rounded
// once.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "../common/complex_dtypes.h"
#include "../common/resize.h"
#include "../common/strided_iteration.h"

namespace opsmith::portable {

// As it lies in memory, of parts T.
template <class T>
struct Complex {
  T re;
  T im;
};

template <class C>
Complex<C> operator+(Complex<C> a, Complex<C> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class C>
Complex<C> operator*(Complex<C> a, Complex<C> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// By Smith's algorithm, which divides by the larger part first: squares of parts may overflow.
template <class C>
Complex<C> operator/(Complex<C> a, Complex<C> b) {
  if (std::fabs(b.re) < std::fabs(b.im)) {
    return Complex<C>{a.im, -a.re} / Complex<C>{b.im, -b.re};
  }
  if (b.re == 0) {
    return {a.re / std::fabs(b.re), a.im / std::fabs(b.im)};
  }
  const C ratio = b.im / b.re;
  const C scale = C(1) / (b.re + b.im * ratio);
  return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
}

inline bool any_is_complex(std::initializer_list<const Tensor*> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor* each) { return is_complex(*each); });
}

// Whether all have out's dtype; rejects the call where one has not.
inline bool are_of_one_complex_dtype(KernelRuntimeContext& context, const Tensor& out,
                                     std::initializer_list<const Tensor*> operands) {
  for (const Tensor* each : operands) {
    OPSMITH_CHECK(
        context, each->scalar_type() == out.scalar_type(), InvalidArgument, false,
        "complex numbers are calculated with where all Tensors have one dtype, but there are %s and %s",
        name_of(each->scalar_type()), name_of(out.scalar_type()));
  }
  return true;
}

// Calls f(Type<T>{}) for the type T of the parts of a complex dtype.
template <const char* Name, class F>
bool with_parts(KernelRuntimeContext& context, ScalarType dtype, const F& f) {
  const bool found =
      (dtype == ScalarType::ComplexHalf && run_case<selected(Name, ScalarType::ComplexHalf), Half>(f)) ||
      (dtype == ScalarType::ComplexFloat && run_case<selected(Name, ScalarType::ComplexFloat), float>(f)) ||
      (dtype == ScalarType::ComplexDouble && run_case<selected(Name, ScalarType::ComplexDouble), double>(f));
  return found || reject_dtype(context, Name, dtype);
}

template <class T>
Complex<compute_t<T>> load_complex(const Complex<T>* p) {
  return {load_element(&p->re), load_element(&p->im)};
}
template <class T>
void store_complex(Complex<T>* p, Complex<compute_t<T>> value) {
  store_element(&p->re, value.re);
  store_element(&p->im, value.im);
}

// A Tensor of complex numbers as one of their parts, in a last dimension of 2. Lives on the stack of the
// kernel that made it.
class Parts {
 public:
  // The Tensor has less than kMaxDims dimensions.
  explicit Parts(const Tensor& t) {
    const size_t rank = static_cast<size_t>(t.dim());
    for (size_t d = 0; d < rank; ++d) {
      sizes_[d] = t.sizes()[d];
      strides_[d] = t.strides()[d] * 2;
      order_[d] = t.dim_order()[d];
    }
    sizes_[rank] = 2;
    strides_[rank] = 1;
    order_[rank] = static_cast<executorch::aten::DimOrderType>(rank);
    impl_.emplace(part_of(t.scalar_type()), static_cast<ssize_t>(rank) + 1, sizes_, t.mutable_data_ptr(),
                  order_, strides_);
    tensor_.emplace(&*impl_);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Tensor& tensor() { return *tensor_; }

 private:
  executorch::aten::SizesType sizes_[kMaxDims] = {};
  executorch::aten::StridesType strides_[kMaxDims] = {};
  executorch::aten::DimOrderType order_[kMaxDims] = {};
  std::optional<executorch::aten::TensorImpl> impl_;
  std::optional<Tensor> tensor_;
};

// Whether each has room for another dimension; rejects the call where one has not.
inline bool have_parts(KernelRuntimeContext& context, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* each : tensors) {
    OPSMITH_CHECK(context, each->dim() < kMaxDims, NotSupported, false,
                  "complex Tensors of at most %" PRId64 " dimensions are calculated with", kMaxDims - 1);
  }
  return true;
}

// out = f(self, other) of every element, complex numbers of one dtype.
template <const char* Name, class F>
Tensor& complex_binary(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out,
                       const F& f) {
  if (!are_of_one_complex_dtype(context, out, {&self, &other}) ||
      !resize_to_broadcast(context, out, {&self, &other}) || !one_dim_order(context, {&out, &self, &other}) ||
      out.numel() == 0) {
    return out;
  }
  with_parts<Name>(context, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto all = strided_over(out, self, other);
    const auto line = all.innermost();
    const auto next = all.innermost(1);
    Complex<T>* const to = static_cast<Complex<T>*>(out.mutable_data_ptr());
    const Complex<T>* const a = static_cast<const Complex<T>*>(self.const_data_ptr());
    const Complex<T>* const b = static_cast<const Complex<T>*>(other.const_data_ptr());
    for_each_row_in_threads<3>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
          const auto place = [&](size_t k) { return at[k] + row * next.stride[k] + i * line.stride[k]; };
          store_complex(to + place(0), f(load_complex(a + place(1)), load_complex(b + place(2))));
        }
      }
    });
  });
  return out;
}

}  // namespace opsmith::portable
