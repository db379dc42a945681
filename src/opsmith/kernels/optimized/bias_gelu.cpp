// optimized::bias_gelu: gelu(input + bias), with one bias for each element of the last dimension.
#include <string_view>

#include "../common/resize.h"
#include "by_dtype.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using BiasGelu = void(const T* x, const T* bias, T* y, int64_t n, bool streamed);

// Shorter rows are not streamed: each ends with a fence.
constexpr int64_t kStreamedRow = 4096;
// Of an element, beside adding it.
constexpr int64_t kCost = 10;

template <class T>
void compute(const Tensor& input, const Tensor& bias, Tensor& out, BiasGelu<T>* function) {
  const int64_t n = bias.numel();
  const T* const x = static_cast<const T*>(input.const_data_ptr());
  const T* const b = static_cast<const T*>(bias.const_data_ptr());
  T* const y = static_cast<T*>(out.mutable_data_ptr());
  const bool streamed = n >= kStreamedRow && is_streamed(out, {&input});
  parallel(input.numel() / n, row_grain_size(n * kCost), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      function(x + row * n, b, y + row * n, n, streamed);
    }
  });
}

}  // namespace

Tensor& bias_gelu_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& bias,
                      std::string_view approximate, Tensor& out) {
  const ScalarType dtype = input.scalar_type();
  OPSMITH_CHECK(context, is_taken(dtype) && bias.scalar_type() == dtype && out.scalar_type() == dtype,
                NotSupported, out,
                "bias_gelu takes " OPSMITH_TAKEN ", with a bias and a result of the same dtype");
  OPSMITH_CHECK(context,
                bias.dim() == 1 && input.dim() >= 1 && input.sizes()[input.dim() - 1] == bias.sizes()[0],
                InvalidArgument, out, "bias_gelu: there is a bias for each element of the last dimension");
  ByDtype<BiasGelu> functions;
  if (approximate == "tanh") {
    OPSMITH_SET_FUNCTIONS(functions, "optimized::bias_gelu.out", bias_gelu_tanh)
  } else {
    OPSMITH_CHECK(context, approximate == "none", InvalidArgument, out,
                  "approximate argument must be either none or tanh.");
    OPSMITH_SET_FUNCTIONS(functions, "optimized::bias_gelu.out", bias_gelu_erf)
  }
  if (!resize_like(context, out, input) || !are_contiguous(context, {&input, &bias, &out}) ||
      out.numel() == 0) {
    return out;
  }
  if (functions.has(dtype)) {
    with_element(dtype, [&](auto element) { compute(input, bias, out, functions.of(element)); });
  }
  return out;
}

}  // namespace opsmith::optimized::native
