// Kernels for test_derived.py that are not about one Tensor: lists, factories, random numbers,
// arguments that change, SymInt. Each is ATen's own for the CPU, run on the device's memory.
#include <opsmith/fallback/fallback.h>

#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_fused_sgd_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/new_full_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/rrelu_with_noise_ops.h>
#include <ATen/ops/split_with_sizes_copy_ops.h>

namespace chip {

void foreach_mul_out(at::TensorList self, const at::Scalar& scalar, at::TensorList out) {
  opsmith::call_boxed<at::_ops::_foreach_mul_Scalar_out, &opsmith::fallback>(self, scalar, out);
}

std::vector<at::Tensor> foreach_neg(at::TensorList self) {
  return opsmith::call_boxed<at::_ops::_foreach_neg, &opsmith::fallback>(self);
}

void foreach_sqrt_(at::TensorList self) {
  opsmith::call_boxed<at::_ops::_foreach_sqrt_, &opsmith::fallback>(self);
}

std::vector<at::Tensor> split_with_sizes_copy(const at::Tensor& self, at::IntArrayRef split_sizes,
                                              int64_t dim) {
  return opsmith::call_boxed<at::_ops::split_with_sizes_copy, &opsmith::fallback>(self, split_sizes, dim);
}

void fused_sgd_(at::TensorList self, at::TensorList grads, at::TensorList momentum_buffer_list,
                double weight_decay, double momentum, double lr, double dampening, bool nesterov,
                bool maximize, bool is_first_step, const std::optional<at::Tensor>& grad_scale,
                const std::optional<at::Tensor>& found_inf) {
  opsmith::call_boxed<at::_ops::_fused_sgd_, &opsmith::fallback>(
      self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
      is_first_step, grad_scale, found_inf);
}

at::Tensor& rrelu_with_noise_out(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                                 const at::Scalar& upper, bool training,
                                 std::optional<at::Generator> generator, at::Tensor& out) {
  return opsmith::call_boxed<at::_ops::rrelu_with_noise_out, &opsmith::fallback>(self, noise, lower, upper,
                                                                                 training, generator, out);
}

at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  return opsmith::call_boxed<at::_ops::bernoulli__float, &opsmith::fallback>(self, p, generator);
}

at::Tensor normal(const at::Tensor& mean, double std, std::optional<at::Generator> generator) {
  return opsmith::call_boxed<at::_ops::normal_Tensor_float, &opsmith::fallback>(mean, std, generator);
}

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                       at::Tensor& out) {
  return opsmith::call_boxed<at::_ops::arange_start_out, &opsmith::fallback>(start, end, step, out);
}

at::Tensor eye(int64_t n, int64_t m, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
               std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return opsmith::call_boxed<at::_ops::eye_m, &opsmith::fallback>(n, m, dtype, layout, device, pin_memory);
}

at::Tensor& ones_like_out(const at::Tensor& self, std::optional<at::MemoryFormat> memory_format,
                          at::Tensor& out) {
  return opsmith::call_boxed<at::_ops::ones_like_out, &opsmith::fallback>(self, memory_format, out);
}

at::Tensor new_full(const at::Tensor& self, c10::SymIntArrayRef size, const at::Scalar& fill_value,
                    std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return opsmith::call_boxed<at::_ops::new_full, &opsmith::fallback>(self, size, fill_value, dtype, layout,
                                                                     device, pin_memory);
}

at::Tensor& pow_out(const at::Tensor& self, const at::Scalar& exponent, at::Tensor& out) {
  return opsmith::call_boxed<at::_ops::pow_Tensor_Scalar_out, &opsmith::fallback>(self, exponent, out);
}

}  // namespace chip
