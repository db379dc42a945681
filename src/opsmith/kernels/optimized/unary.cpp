// exp, sigmoid, silu, tanh and gelu.
#include <algorithm>
#include <string_view>

#include <executorch/runtime/kernel/kernel_includes.h>

#include "dtypes.h"
#include "instruction_set.h"
#include "layout.h"
#include "threads.h"
#include "walk.h"

namespace opsmith::optimized::native {

using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;

namespace {

template <class T>
using Unary = void(const T* x, T* y, int64_t n, bool streamed);

// A function of elementary.h takes about as long as adding ten elements, so threads are worth it early.
constexpr int64_t kGrain = 8192;

template <class T>
void compute(const Tensor& self, Tensor& out, Unary<T>* function) {
  const T* const x = reinterpret_cast<const T*>(self.const_data_ptr());
  T* const y = reinterpret_cast<T*>(out.mutable_data_ptr());
  const bool streamed = static_cast<int64_t>(out.nbytes()) >= kStreamedBytes;
  if (same_layout(self, out)) {
    parallel(out.numel(), kGrain,
             [=](int64_t begin, int64_t end) { function(x + begin, y + begin, end - begin, streamed); });
    return;
  }
  Walk walk;
  for (int d = 0; d < out.dim(); ++d) {
    walk.add(out.sizes()[d], {out.strides()[d], self.strides()[d], 0});
  }
  walk.merge();
  walk.run(kGrain, [&](const Walk::Offsets& at, int64_t rows, int64_t n) {
    constexpr int64_t kBlock = 256;
    T block[kBlock];
    for (int64_t row = 0; row < rows; ++row) {
      T* const to = y + at[0] + row * walk.row_stride()[0];
      const T* const from = x + at[1] + row * walk.row_stride()[1];
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = std::min(n - begin, kBlock);
        for (int64_t i = 0; i < count; ++i) {
          block[i] = from[(begin + i) * walk.stride()[1]];
        }
        function(block, block, count, false);
        for (int64_t i = 0; i < count; ++i) {
          to[(begin + i) * walk.stride()[0]] = block[i];
        }
      }
    }
  });
}

Tensor& unary(KernelRuntimeContext& ctx, const Tensor& self, Tensor& out, const char* name,
              const ByDtype<Unary>& functions) {
  ET_KERNEL_CHECK_MSG(ctx, self.scalar_type() == out.scalar_type() && functions.has(self.scalar_type()),
                      NotSupported, out, "%s takes float32 or bfloat16, and its result has the same dtype",
                      name);
  ET_KERNEL_CHECK_MSG(ctx, executorch::runtime::resize_tensor(out, self.sizes()) == Error::Ok,
                      InvalidArgument, out, "%s: the result has another shape than its operand", name);
  if (self.scalar_type() == executorch::aten::ScalarType::Float) {
    compute(self, out, functions.on_float);
  } else {
    compute(self, out, functions.on_bfloat16);
  }
  return out;
}

}  // namespace

#define OPSMITH_UNARY_KERNEL(name)                                                 \
  Tensor& name##_out(KernelRuntimeContext& ctx, const Tensor& self, Tensor& out) { \
    ByDtype<Unary> functions;                                                      \
    OPSMITH_SET_FUNCTIONS(functions, #name ".out", name)                           \
    return unary(ctx, self, out, #name, functions);                                \
  }
OPSMITH_UNARY_KERNEL(exp)
OPSMITH_UNARY_KERNEL(sigmoid)
OPSMITH_UNARY_KERNEL(silu)
OPSMITH_UNARY_KERNEL(tanh)

Tensor& gelu_out(KernelRuntimeContext& ctx, const Tensor& self, std::string_view approximate, Tensor& out) {
  ByDtype<Unary> functions;
  if (approximate == "tanh") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_tanh)
  } else if (approximate == "none") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_erf)
  } else {
    ET_KERNEL_CHECK_MSG(ctx, false, InvalidArgument, out, "gelu approximates by `none` or `tanh`, not `%.*s`",
                        static_cast<int>(approximate.size()), approximate.data());
  }
  return unary(ctx, self, out, "gelu", functions);
}

}  // namespace opsmith::optimized::native
