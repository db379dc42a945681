// add, mul and the gradient of threshold, of operands that broadcast, of float32, bfloat16 or float16. A
// number beside the last two is a float32.
#include <algorithm>
#include <string_view>
#include <type_traits>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "by_dtype.h"
#include "elements.h"
#include "numbers.h"
#include "pointwise_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

// Shorter runs are not streamed: each ends with a fence.
constexpr int64_t kStreamedRun = 4096;

// How out, self and other lie.
using Layout = StridedIterator<3>;
using Offsets = Layout::Offsets;

template <class T>
using Elements = void(const T* x, const T* y, float alpha, T* z, int64_t n, bool streamed);
template <class T>
using WithNumbers = void(const T* x, const float* numbers, T* z, int64_t n, bool streamed);
template <class T>
using Affine = void(const T* x, float scale, float shift, T* z, int64_t n, bool streamed);

// The functions of one operator: of runs of two operands, and, of a sum, product or quotient, of a run and a
// number.
struct Operation {
  const char* name;
  bool is_sum;
  float alpha;
  ByDtype<Elements> elements;
  ByDtype<Affine> affine = {};
  ByDtype<WithNumbers> over_number = {};
  ByDtype<WithNumbers> number_over = {};

  bool takes_numbers(ScalarType dtype) const { return affine.has(dtype) || over_number.has(dtype); }

  template <class T>
  void of_elements(const T* x, const T* y, T* z, int64_t n, bool streamed) const {
    elements.of(T{})(x, y, alpha, z, n, streamed);
  }
  // Adding -0 leaves every product as it is, the sign of a zero too.
  template <class T>
  void with_second(const T* x, float y, T* z, int64_t n, bool streamed) const {
    if (auto* const function = over_number.of(T{})) {
      const float numbers[3] = {y};
      return function(x, numbers, z, n, streamed);
    }
    line(x, is_sum ? 1.0f : y, is_sum ? alpha * y : -0.0f, z, n, streamed);
  }
  template <class T>
  void with_first(float x, const T* y, T* z, int64_t n, bool streamed) const {
    if (auto* const function = number_over.of(T{})) {
      const float numbers[3] = {x};
      return function(y, numbers, z, n, streamed);
    }
    line(y, is_sum ? alpha : x, is_sum ? x : -0.0f, z, n, streamed);
  }

 private:
  template <class T>
  void line(const T* x, float scale, float shift, T* z, int64_t n, bool streamed) const {
    affine.of(T{})(x, scale, shift, z, n, streamed);
  }
};

// `n` elements in float32, `stride` apart.
void gather(const Tensor& tensor, int64_t offset, int64_t stride, float* block, int64_t n) {
  with_element(tensor.scalar_type(), [&](auto element) {
    const auto* const x = static_cast<const decltype(element)*>(tensor.const_data_ptr()) + offset;
    for (int64_t i = 0; i < n; ++i) {
      block[i] = widened(x[i * stride]);
    }
  });
}

constexpr int64_t kBlock = 512;

// Operands that lie otherwise than the result, or have another dtype: by blocks of float32.
template <class T>
void compute_blocks(const Tensor& self, const Tensor& other, T* z, const Layout& layout,
                    const Operation& operation) {
  const Offsets stride = layout.innermost().stride, row_stride = layout.innermost(1).stride;
  for_each_row_in_threads<3>(layout, kGrain / 4, [&](const Offsets& at, int64_t rows, int64_t n) {
    float x[kBlock], y[kBlock];
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = std::min(n - begin, kBlock);
        gather(self, at[1] + row * row_stride[1] + begin * stride[1], stride[1], x, count);
        gather(other, at[2] + row * row_stride[2] + begin * stride[2], stride[2], y, count);
        operation.of_elements(x, y, x, count, false);
        narrow_to(x, count, z + at[0] + row * row_stride[0] + begin * stride[0], stride[0]);
      }
    }
  });
}

// Rows of few elements, which an operand repeats or has one for each: they are spread over a block of many
// rows, beside which the other operand and the result lie as they are.
template <class T>
void compute_spread(const T* x, const T* y, T* z, const Layout& layout, const Operation& operation) {
  const Offsets stride = layout.innermost().stride, row_stride = layout.innermost(1).stride;
  const int full = stride[1] == 1 && row_stride[1] == layout.innermost().size ? 1 : 2;
  const int spread = 3 - full;
  for_each_row_in_threads<3>(layout, kGrain, [&](const Offsets& at, int64_t rows, int64_t n) {
    T block[kBlock];
    const int64_t together = kBlock / n;
    const T* const from = (spread == 1 ? x : y) + at[spread];
    const T* const beside = (full == 1 ? x : y) + at[full];
    for (int64_t first = 0; first < rows; first += together) {
      const int64_t count = std::min(together, rows - first);
      if (first == 0 || row_stride[spread] != 0) {
        T* to = block;
        for (int64_t row = first; row < first + count; ++row, to += n) {
          const T* const own = from + row * row_stride[spread];
          for (int64_t i = 0; i < n; ++i) {
            to[i] = own[i * stride[spread]];
          }
        }
      }
      const T* const other = beside + first * n;
      operation.of_elements(full == 1 ? other : block, full == 1 ? block : other, z + at[0] + first * n,
                            count * n, false);
    }
  });
}

// Whether compute_spread is for these.
bool is_spread(const Layout& layout) {
  const int64_t n = layout.innermost().size;
  const Offsets stride = layout.innermost().stride, row_stride = layout.innermost(1).stride;
  const auto is_full = [&](int k) { return stride[k] == 1 && row_stride[k] == n; };
  return n > 1 && n <= kBlock / 8 && is_full(0) && (is_full(1) || is_full(2));
}

template <class T>
void compute(const Tensor& self, const Tensor& other, Tensor& out, const Operation& operation) {
  constexpr ScalarType kDtype = kDtypeOf<T>;
  const bool x_is = self.scalar_type() == kDtype, y_is = other.scalar_type() == kDtype;
  const T* const x = static_cast<const T*>(self.const_data_ptr());
  const T* const y = static_cast<const T*>(other.const_data_ptr());
  T* const z = static_cast<T*>(out.mutable_data_ptr());
  const bool is_large = is_streamed(out, {&self, &other});
  if (x_is && y_is && same_layout(self, out) && same_layout(other, out)) {
    parallel(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      operation.of_elements(x + begin, y + begin, z + begin, end - begin, is_large);
    });
    return;
  }
  const Layout layout = strided_over(out, self, other);
  const int64_t length = layout.innermost().size;
  const Offsets stride = layout.innermost().stride, row_stride = layout.innermost(1).stride;
  const bool streamed = is_large && length >= kStreamedRun;
  const bool is_dense = length == 1 || stride[0] == 1;
  const bool numbers = operation.takes_numbers(kDtype);
  const auto each_row = [&](auto&& run) {
    for_each_row_in_threads<3>(layout, kGrain, [&](const Offsets& at, int64_t rows, int64_t n) {
      for (int64_t row = 0; row < rows; ++row) {
        run(at[1] + row * row_stride[1], at[2] + row * row_stride[2], z + at[0] + row * row_stride[0], n);
      }
    });
  };
  if (x_is && y_is && is_spread(layout)) {
    compute_spread(x, y, z, layout, operation);
  } else if (is_dense && x_is && y_is && stride[1] == 1 && stride[2] == 1) {
    each_row([&](int64_t a, int64_t b, T* to, int64_t n) {
      operation.of_elements(x + a, y + b, to, n, streamed);
    });
  } else if (numbers && is_dense && x_is && stride[1] == 1 && stride[2] == 0) {
    each_row([&](int64_t a, int64_t b, T* to, int64_t n) {
      operation.with_second(x + a, element_at(other, b), to, n, streamed);
    });
  } else if (numbers && is_dense && y_is && stride[1] == 0 && stride[2] == 1) {
    each_row([&](int64_t a, int64_t b, T* to, int64_t n) {
      operation.with_first(element_at(self, a), y + b, to, n, streamed);
    });
  } else {
    compute_blocks(self, other, z, layout, operation);
  }
}

Tensor& binary(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out,
               const Operation& operation) {
  OPSMITH_CHECK(context,
                is_taken(self.scalar_type()) && is_taken(other.scalar_type()) &&
                    is_taken(out.scalar_type()) && operation.elements.has(out.scalar_type()),
                NotSupported, out, "%s takes " OPSMITH_TAKEN " only", operation.name);
  if (!resize_to_broadcast(context, out, {&self, &other}) || !one_dim_order(context, {&out, &self, &other})) {
    return out;
  }
  with_element(out.scalar_type(),
               [&](auto element) { compute<decltype(element)>(self, other, out, operation); });
  return out;
}

// The function of runs. float32's is for compute_blocks too, whatever programs are selected.
#define OPSMITH_SET_ELEMENTS(operation, schema, function)       \
  OPSMITH_SET_FUNCTIONS((operation).elements, schema, function) \
  (operation).elements.on_float = OPSMITH_BEST(function##_float);

constexpr char kAdd[] = "add.out";
constexpr char kSub[] = "sub.out";

// self ± alpha·other
template <const char* Operator>
Tensor& sum(KernelRuntimeContext& context, const char* name, const Tensor& self, const Tensor& other,
            const Scalar& alpha, Tensor& out) {
  OPSMITH_CHECK(context, !alpha.isBoolean(), InvalidArgument, out,
                "Boolean alpha only supported for Boolean results.");
  if (!fits(context, alpha, ScalarType::Float)) {
    return out;
  }
  float factor = value_of<float>(alpha);
  if constexpr (Operator == kSub) {
    // An integer has no negative zero.
    factor = alpha.isFloatingPoint() ? -factor : 0.0f - factor;
  }
  Operation operation{name, true, factor, {}};
  OPSMITH_SET_ELEMENTS(operation, Operator, add)
  OPSMITH_SET_FUNCTIONS(operation.affine, Operator, affine)
  return binary(context, self, other, out, operation);
}

}  // namespace

Tensor& add_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  return sum<kAdd>(context, "add", self, other, alpha, out);
}

Tensor& mul_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  Operation operation{"mul", false, 1.0f, {}};
  OPSMITH_SET_ELEMENTS(operation, "mul.out", mul)
  OPSMITH_SET_FUNCTIONS(operation.affine, "mul.out", affine)
  return binary(context, self, other, out, operation);
}

Tensor& threshold_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                               const Scalar& threshold, Tensor& grad_input) {
  if (!fits(context, threshold, ScalarType::Float)) {
    return grad_input;
  }
  Operation operation{"threshold_backward", false, value_of<float>(threshold), {}};
  OPSMITH_SET_ELEMENTS(operation, "threshold_backward.grad_input", above)
  return binary(context, grad_output, self, grad_input, operation);
}

Tensor& sub_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  return sum<kSub>(context, "sub", self, other, alpha, out);
}

Tensor& div_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& other, Tensor& out) {
  Operation operation{"div", false, 1.0f, {}};
  OPSMITH_SET_ELEMENTS(operation, "div.out", quotient)
  OPSMITH_SET_FUNCTIONS(operation.over_number, "div.out", divided)
  OPSMITH_SET_FUNCTIONS(operation.number_over, "div.out", dividing)
  return binary(context, self, other, out, operation);
}

#define OPSMITH_BINARY_KERNEL(name, schema, function)                                                \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& x, const Tensor& y, Tensor& out) { \
    Operation operation{#name, false, 1.0f, {}};                                                     \
    OPSMITH_SET_ELEMENTS(operation, schema, function)                                                \
    return binary(context, x, y, out, operation);                                                    \
  }
OPSMITH_BINARY_KERNEL(maximum, "maximum.out", larger)
OPSMITH_BINARY_KERNEL(minimum, "minimum.out", smaller)
OPSMITH_BINARY_KERNEL(sigmoid_backward, "sigmoid_backward.grad_input", sigmoid_gradient)
OPSMITH_BINARY_KERNEL(tanh_backward, "tanh_backward.grad_input", tanh_gradient)
OPSMITH_BINARY_KERNEL(silu_backward, "silu_backward.grad_input", silu_gradient)
#undef OPSMITH_BINARY_KERNEL

Tensor& gelu_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                          std::string_view approximate, Tensor& grad_input) {
  constexpr char kGradient[] = "gelu_backward.grad_input";
  Operation operation{"gelu_backward", false, 1.0f, {}};
  if (approximate == "tanh") {
    OPSMITH_SET_ELEMENTS(operation, kGradient, gelu_tanh_gradient)
  } else if (approximate == "none") {
    OPSMITH_SET_ELEMENTS(operation, kGradient, gelu_erf_gradient)
  } else {
    OPSMITH_CHECK(context, false, InvalidArgument, grad_input,
                  "approximate argument must be either none or tanh.");
  }
  return binary(context, grad_output, self, grad_input, operation);
}

Tensor& leaky_relu_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                                const Scalar& negative_slope, bool /*self_is_result*/, Tensor& grad_input) {
  Operation operation{"leaky_relu_backward", false, value_of<float>(negative_slope), {}};
  OPSMITH_SET_ELEMENTS(operation, "leaky_relu_backward.grad_input", leaky_relu_gradient)
  return binary(context, grad_output, self, grad_input, operation);
}

}  // namespace opsmith::optimized::native
