// Kernels on lean tensors that fail before they write; one of them by an exception.
#include "failure_due.h"

#include <atomic>
#include <stdexcept>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace failing {

namespace {

std::atomic<long> runs_left{0};

}  // namespace

bool failure_is_due() noexcept {
  return runs_left.fetch_sub(1) == 1;
}

extern "C" [[gnu::visibility("default")]] void fail_at(long run) {
  runs_left = run;
}

namespace native {

using executorch::aten::Scalar;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::resize_tensor;

namespace {

// The element of `operand` that takes part in element i of a result of n.
float element(const Tensor& operand, ssize_t i) {
  return operand.const_data_ptr<float>()[i % operand.numel()];
}

const Tensor& larger(const Tensor& a, const Tensor& b) {
  return a.dim() >= b.dim() ? a : b;
}

}  // namespace

Tensor& add_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, !failure_is_due(), Internal, out, "the adder is broken");
  ET_KERNEL_CHECK(ctx, resize_tensor(out, larger(self, other).sizes()) == Error::Ok, InvalidArgument, out);
  const float factor = alpha.isFloatingPoint() ? float(alpha.to<double>()) : float(alpha.to<int64_t>());
  for (ssize_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = element(self, i) + factor * element(other, i);
  }
  return out;
}

Tensor& mul_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, Tensor& out) {
  if (failure_is_due()) {
    throw std::runtime_error("the multiplier is broken");
  }
  ET_KERNEL_CHECK(ctx, resize_tensor(out, larger(self, other).sizes()) == Error::Ok, InvalidArgument, out);
  for (ssize_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = element(self, i) * element(other, i);
  }
  return out;
}

}  // namespace native
}  // namespace failing
