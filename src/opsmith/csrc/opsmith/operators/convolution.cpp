// Convolutions on the CPU, through the machinery of the fallback. See convolution.h.
#include <opsmith/operators/convolution.h>

#include <opsmith/fallback/fallback.h>
#include <opsmith/fallback/fallback_cause.h>

#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>

namespace opsmith {
namespace {

// The operator that was called, for the policy and the accounting.
template <class Op>
const c10::OperatorHandle& served() {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  return op;
}

}  // namespace

at::Tensor convolution_overrideable(const at::Tensor& input, const at::Tensor& weight,
                                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                    at::IntArrayRef output_padding, int64_t groups) {
  const FallbackCause cause(served<at::_ops::convolution_overrideable>());
  return call_boxed<at::_ops::convolution, &fallback>(input, weight, bias, stride, padding, dilation,
                                                      transposed, output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask) {
  // The bias has one element for each output channel; its sizes are not among the arguments.
  const std::array<int64_t, 1> bias_sizes{grad_output.size(1)};
  const FallbackCause cause(served<at::_ops::convolution_backward_overrideable>());
  return call_boxed<at::_ops::convolution_backward, &fallback>(
      grad_output, input, weight, at::OptionalIntArrayRef(bias_sizes), stride, padding, dilation, transposed,
      output_padding, groups, output_mask);
}

}  // namespace opsmith
