// Kernels for test_gradients.py. Each runs ATen's CPU operators on the host's view of the device's
// memory; calls are counted, so that tests see which of them served.
#include "ChipFunctions.h"
#include "ChipNativeFunctions.h"

#include <map>
#include <mutex>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <opsmith/host_access.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace chip {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::mutex mutex;
std::map<std::string, int64_t> counts;

void count(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++counts[name];
}

// How often the kernel `name` ran since this was asked last.
int64_t calls(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(counts[name], 0);
}

// The same elements as a CPU tensor. The caller of a kernel has waited for the device.
at::Tensor host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(opsmith::host_pointer(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

std::optional<at::Tensor> host(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(host(*tensor)) : std::nullopt;
}

at::Tensor to_device(const at::Tensor& result, const at::Tensor& like) {
  return result.defined() ? result.to(like.device()) : result;
}

void write(const at::Tensor& result, const at::Tensor& out) {
  at::native::resize_output(out, result.sizes());
  host(out).copy_(result);
}

}  // namespace

at::Tensor relu(const at::Tensor& self) {
  count("relu");
  return to_device(at::relu(host(self)), self);
}

at::Tensor relu_backward(const at::Tensor& grad_result, const at::Tensor& self, const at::Tensor& result,
                         std::array<bool, 1> needs) {
  count("relu_backward");
  TORCH_CHECK(needs[0]);
  return to_device(host(grad_result) * (host(result) > 0), self);
}

void mul(at::TensorIteratorBase& iter) {
  host(iter.output()).copy_(at::mul(host(iter.input(0)), host(iter.input(1))));
}

std::tuple<at::Tensor, at::Tensor> mul_backward(const at::Tensor& grad_result, const at::Tensor& self,
                                                const at::Tensor& other, std::array<bool, 2> needs) {
  count(needs[0] && needs[1] ? "mul_backward both" : "mul_backward one");
  const auto gradient = [&](const at::Tensor& of, const at::Tensor& by, bool needed) {
    return needed ? to_device((host(grad_result) * host(by)).sum_to_size(of.sizes()).to(of.scalar_type()),
                              grad_result)
                  : at::Tensor();
  };
  return {gradient(self, other, needs[0]), gradient(other, self, needs[1])};
}

at::Tensor& sinh_out(const at::Tensor& self, at::Tensor& out) {
  write(at::sinh(host(self)), out);
  return out;
}

at::Tensor sinh_backward(const at::Tensor& grad_result, const at::Tensor& self, std::array<bool, 1> needs) {
  return to_device(host(grad_result) * at::cosh(host(self)), self);
}

std::tuple<at::Tensor, at::Tensor> topk(const at::Tensor& self, int64_t k, int64_t dim, bool largest,
                                        bool sorted) {
  const auto [values, indices] = at::topk(host(self), k, dim, largest, sorted);
  return {to_device(values, self), to_device(indices, self)};
}

at::Tensor topk_backward(const at::Tensor& grad_values, const at::Tensor& grad_indices,
                         const at::Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted,
                         const at::Tensor& indices, std::array<bool, 1> needs) {
  TORCH_CHECK(!grad_indices.defined(), "integers have no gradient");
  return to_device(at::zeros_like(host(self)).scatter(dim, host(indices), host(grad_values)), self);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& input,
                                                          at::IntArrayRef normalized_shape,
                                                          const std::optional<at::Tensor>& weight,
                                                          const std::optional<at::Tensor>& bias, double eps) {
  const auto [output, mean, rstd] =
      at::native_layer_norm(host(input), normalized_shape, host(weight), host(bias), eps);
  return {to_device(output, input), to_device(mean, input), to_device(rstd, input)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& grad_result0, const at::Tensor& grad_result1, const at::Tensor& grad_result2,
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, double eps, const at::Tensor& result0, const at::Tensor& mean,
    const at::Tensor& rstd, std::array<bool, 3> needs) {
  TORCH_CHECK(grad_result0.defined() && grad_result1.defined() && grad_result2.defined());
  TORCH_CHECK(weight.has_value() || !needs[1]);
  const auto [grad_input, grad_weight, grad_bias] =
      at::native_layer_norm_backward(host(grad_result0), host(input), normalized_shape, host(mean),
                                     host(rstd), host(weight), host(bias), needs);
  return {to_device(grad_input, input), to_device(grad_weight, input), to_device(grad_bias, input)};
}

at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  std::vector<at::Tensor> on_host;
  for (const at::Tensor& tensor : tensors) {
    on_host.push_back(host(tensor));
  }
  return to_device(at::cat(on_host, dim), tensors.front());
}

std::vector<at::Tensor> cat_backward(const at::Tensor& grad_result, at::TensorList tensors, int64_t dim,
                                     std::array<bool, 1> needs) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : tensors) {
    sizes.push_back(tensor.size(dim));
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& part : host(grad_result).split_with_sizes(sizes, dim)) {
    gradients.push_back(to_device(part, grad_result));
  }
  return gradients;
}

at::Tensor tan(const at::Tensor& self) {
  return to_device(at::tan(host(self)), self);
}

at::Tensor tan_backward(const at::Tensor& grad_result, const at::Tensor& self, const at::Tensor& result,
                        std::array<bool, 1> needs) {
  const at::Tensor tangent = host(result);
  return to_device(host(grad_result) * (tangent * tangent + 1), self);
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  count("linear");
  return to_device(at::linear(host(input), host(weight), host(bias)), input);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(const at::Tensor& grad_result,
                                                               const at::Tensor& input,
                                                               const at::Tensor& weight,
                                                               const std::optional<at::Tensor>& bias,
                                                               std::array<bool, 3> needs) {
  count("linear_backward");
  const at::Tensor grad = host(grad_result).reshape({-1, weight.size(0)});
  const at::Tensor rows = host(input).reshape({-1, weight.size(1)});
  return {needs[0] ? to_device(at::mm(grad, host(weight)).view_as(host(input)), input) : at::Tensor(),
          needs[1] ? to_device(at::mm(grad.t(), rows), input) : at::Tensor(),
          needs[2] ? to_device(grad.sum(0), input) : at::Tensor()};
}

at::Tensor& matmul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  count("matmul_out");
  write(at::matmul(host(self), host(other)), out);
  return out;
}

// ---- functions for autograd

namespace {

struct Matmul : torch::autograd::Function<Matmul> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, const at::Tensor& other) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({self, other});
    return at::chip::matmul(self, other);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    count("Matmul::backward");
    return {at::matmul(grads[0], saved[1].mT()), at::matmul(saved[0].mT(), grads[0])};
  }
};

// The gradient is 3 x, which PyTorch's own is not: tests see which one was used.
struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({self});
    return at::chip::mul(self, self);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {at::mul(grads[0], context->get_saved_variables()[0]).mul(3)};
  }
};

struct Sigmoid : torch::autograd::Function<Sigmoid> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    count("Sigmoid::forward");
    at::Tensor result = to_device(at::sigmoid(self.cpu()), self);
    context->save_for_backward({result});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor result = context->get_saved_variables()[0];
    return {grads[0] * result * (1 - result)};
  }
};

struct Tanh : torch::autograd::Function<Tanh> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    count("Tanh::forward");
    context->save_for_backward({self});
    return to_device(at::tanh(self.cpu()), self);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor tangent = to_device(at::tanh(context->get_saved_variables()[0].cpu()), grads[0]);
    return {grads[0] * (1 - tangent * tangent)};
  }
};

struct SiluInplace : torch::autograd::Function<SiluInplace> {
  static at::Tensor forward(AutogradContext* context, at::Tensor self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    count("SiluInplace::forward");
    context->save_for_backward({self.clone()});
    context->mark_dirty({self});
    at::chip::silu_(self);
    return self;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor self = context->get_saved_variables()[0];
    const at::Tensor part = at::sigmoid(self);
    return {grads[0] * part * (1 + self * (1 - part))};
  }
};

}  // namespace

at::Tensor matmul_autograd(const at::Tensor& self, const at::Tensor& other) {
  return Matmul::apply(self, other);
}

at::Tensor square_autograd(const at::Tensor& self) {
  return Square::apply(self);
}

at::Tensor sigmoid_autograd(const at::Tensor& self) {
  return Sigmoid::apply(self);
}

at::Tensor tanh_autograd(const at::Tensor& self) {
  return Tanh::apply(self);
}

at::Tensor& tanh_(at::Tensor& self) {
  count("tanh_");
  host(self).tanh_();
  return self;
}

at::Tensor& silu_out(const at::Tensor& self, at::Tensor& out) {
  write(at::silu(host(self)), out);
  return out;
}

at::Tensor& silu_autograd_(at::Tensor& self) {
  SiluInplace::apply(self);
  return self;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& /*attn_bias*/, double /*dropout_p*/, bool /*is_causal*/,
          bool /*return_debug_mask*/, std::optional<double> scale) {
  count("attention");
  const at::Tensor result = std::get<0>(at::_scaled_dot_product_attention_math(
      host(query), host(key), host(value), std::nullopt, 0.0, false, std::nullopt, scale));
  const at::Tensor none = at::empty({0}, query.options());
  return {to_device(result, query), none, none, none, query.size(2), key.size(2), none, none, none};
}

}  // namespace chip

TORCH_LIBRARY_FRAGMENT(chip_test, m) {
  m.def("calls(str name) -> int", &chip::calls);
}
