// exp, relu, sigmoid, silu, hardsigmoid, hardswish, tanh and gelu.
#include <algorithm>
#include <string_view>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "by_dtype.h"
#include "simd/float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using Unary = void(const T* x, T* y, int64_t n, bool streamed);

// A function of elementary.h takes about as long as adding ten elements, so threads are worth it early.
constexpr int64_t kGrain = 8192;

template <class T>
void compute(const Tensor& self, Tensor& out, Unary<T>* function) {
  const T* const x = reinterpret_cast<const T*>(self.const_data_ptr());
  T* const y = reinterpret_cast<T*>(out.mutable_data_ptr());
  const bool streamed = is_streamed(out, {&self});
  if (same_layout(self, out)) {
    parallel(out.numel(), kGrain,
             [=](int64_t begin, int64_t end) { function(x + begin, y + begin, end - begin, streamed); });
    return;
  }
  const auto all = strided_over(out, self);
  const auto line = all.innermost(), next = all.innermost(1);
  for_each_row_in_threads<2>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
    constexpr int64_t kBlock = 256;
    T block[kBlock];
    for (int64_t row = 0; row < rows; ++row) {
      T* const to = y + at[0] + row * next.stride[0];
      const T* const from = x + at[1] + row * next.stride[1];
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = std::min(n - begin, kBlock);
        for (int64_t i = 0; i < count; ++i) {
          block[i] = from[(begin + i) * line.stride[1]];
        }
        function(block, block, count, false);
        for (int64_t i = 0; i < count; ++i) {
          to[(begin + i) * line.stride[0]] = block[i];
        }
      }
    }
  });
}

Tensor& unary(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
              const ByDtype<Unary>& functions) {
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type() && functions.has(self.scalar_type()),
                NotSupported, out, "%s takes float32 or bfloat16, and its result has the same dtype", name);
  if (!resize_like(context, out, self) || !one_dim_order(context, {&out, &self})) {
    return out;
  }
  with_element(self.scalar_type(), [&](auto element) { compute(self, out, functions.of(element)); });
  return out;
}

}  // namespace

#define OPSMITH_UNARY_KERNEL(name)                                                     \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) { \
    ByDtype<Unary> functions;                                                          \
    OPSMITH_SET_FUNCTIONS(functions, #name ".out", name)                               \
    return unary(context, self, out, #name, functions);                                \
  }
OPSMITH_UNARY_KERNEL(exp)
OPSMITH_UNARY_KERNEL(hardsigmoid)
OPSMITH_UNARY_KERNEL(hardswish)
OPSMITH_UNARY_KERNEL(relu)
OPSMITH_UNARY_KERNEL(sigmoid)
OPSMITH_UNARY_KERNEL(silu)
OPSMITH_UNARY_KERNEL(tanh)

Tensor& gelu_out(KernelRuntimeContext& context, const Tensor& self, std::string_view approximate,
                 Tensor& out) {
  ByDtype<Unary> functions;
  if (approximate == "tanh") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_tanh)
  } else if (approximate == "none") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_erf)
  } else {
    OPSMITH_CHECK(context, false, InvalidArgument, out, "approximate argument must be either none or tanh.");
  }
  return unary(context, self, out, "gelu", functions);
}

}  // namespace opsmith::optimized::native
