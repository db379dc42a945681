// The gradients of the library's fused operators, in ATen's operators: they are differentiable themselves,
// and torch.compile traces them.
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

namespace opsmith::optimized {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

// The operator, called below autograd. Each type of function stands for one operator.
template <class Function, class... Argument>
auto below_autograd(const char* name, Argument&&... arguments) {
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
  at::AutoDispatchBelowADInplaceOrView below;
  return handle.call(std::forward<Argument>(arguments)...);
}

OptionalTensor given(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// The first dimensions, along which parameters are shared.
std::vector<int64_t> shared_dims(const at::Tensor& tensor, size_t normalized) {
  std::vector<int64_t> dims(static_cast<size_t>(tensor.dim()) - normalized);
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d] = static_cast<int64_t>(d);
  }
  return dims;
}

std::vector<int64_t> normalized_dims(const at::Tensor& tensor, size_t normalized) {
  std::vector<int64_t> dims(normalized);
  for (size_t d = 0; d < normalized; ++d) {
    dims[d] = tensor.dim() - static_cast<int64_t>(normalized - d);
  }
  return dims;
}

// The sum along these, which is the tensor itself where there is none.
at::Tensor summed(const at::Tensor& tensor, const std::vector<int64_t>& dims) {
  return dims.empty() ? tensor : at::sum(tensor, dims);
}

// Gradients are asked for by the places of the Tensors that there are.

// Of two gradients, each of which may be undefined.
at::Tensor both(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() ? at::add(a, b) : a.defined() ? a : b;
}

void save_norm(AutogradContext* ctx, const Pair& results, at::IntArrayRef normalized_shape,
               const OptionalTensor& weight, const OptionalTensor& bias) {
  ctx->save_for_backward({std::get<1>(results), weight.value_or(at::Tensor()), bias.value_or(at::Tensor())});
  ctx->saved_data["shape"] = normalized_shape.vec();
  ctx->set_materialize_grads(false);
}

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& residual,
                               at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                               std::optional<double> eps) {
    const Pair results = below_autograd<Pair(const at::Tensor&, const at::Tensor&, at::IntArrayRef,
                                             const OptionalTensor&, std::optional<double>)>(
        "optimized::add_rms_norm", input, residual, normalized_shape, weight, eps);
    save_norm(ctx, results, normalized_shape, weight, std::nullopt);
    ctx->saved_data["eps"] = eps.value_or(std::numeric_limits<float>::epsilon());
    return {std::get<0>(results), std::get<1>(results)};
  }

  // With h = sum / √(mean(sum²) + eps) and w = g·weight: (w - h·mean(w·h)) / √(mean(sum²) + eps).
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1];
    at::Tensor of_sum = gradients[1], of_weight;
    if (gradients[0].defined()) {
      const size_t normalized = ctx->saved_data["shape"].toIntVector().size();
      const auto dims = normalized_dims(sum, normalized);
      const at::Tensor s = sum.to(at::kFloat), g = gradients[0].to(at::kFloat);
      const at::Tensor rstd =
          at::rsqrt(at::add(at::mean(at::mul(s, s), dims, true), ctx->saved_data["eps"].toDouble()));
      const at::Tensor h = at::mul(s, rstd);
      const at::Tensor w = weight.defined() ? at::mul(g, weight.to(at::kFloat)) : g;
      const at::Tensor share = at::mean(at::mul(w, h), dims, true);
      of_sum = both(at::mul(at::sub(w, at::mul(h, share)), rstd).to(sum.scalar_type()), of_sum);
      if (weight.defined() && ctx->needs_input_grad(2)) {
        of_weight = summed(at::mul(g, h), shared_dims(sum, normalized)).to(weight.scalar_type());
      }
    }
    return {of_sum, of_sum, at::Tensor(), of_weight, at::Tensor()};
  }
};

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& residual,
                               at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps) {
    const Pair results = below_autograd<Pair(const at::Tensor&, const at::Tensor&, at::IntArrayRef,
                                             const OptionalTensor&, const OptionalTensor&, double)>(
        "optimized::add_layer_norm", input, residual, normalized_shape, weight, bias, eps);
    save_norm(ctx, results, normalized_shape, weight, bias);
    ctx->saved_data["eps"] = eps;
    return {std::get<0>(results), std::get<1>(results)};
  }

  // Of the sum, whose statistics are calculated again.
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const OptionalTensor weight = given(saved[1]), bias = given(saved[2]);
    at::Tensor of_sum = gradients[1], of_weight, of_bias;
    if (gradients[0].defined()) {
      const std::vector<int64_t> shape = ctx->saved_data["shape"].toIntVector();
      const double eps = ctx->saved_data["eps"].toDouble();
      const auto [normed, mean, rstd] = at::native_layer_norm(sum, shape, weight, bias, eps);
      at::Tensor own;
      std::tie(own, of_weight, of_bias) = at::native_layer_norm_backward(
          gradients[0], sum, shape, mean, rstd, weight, bias,
          {true, weight.has_value() && ctx->needs_input_grad(2),
           bias.has_value() && ctx->needs_input_grad(weight.has_value() ? 3 : 2)});
      of_sum = both(own, of_sum);
    }
    return {of_sum, of_sum, at::Tensor(), of_weight, of_bias, at::Tensor()};
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& bias,
                            const std::string& approximate) {
    ctx->save_for_backward({input, bias});
    ctx->saved_data["approximate"] = approximate;
    return below_autograd<at::Tensor(const at::Tensor&, const at::Tensor&, std::string_view)>(
        "optimized::bias_gelu", input, bias, approximate);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor of_input = at::gelu_backward(gradients[0], at::add(saved[0], saved[1]),
                                                  ctx->saved_data["approximate"].toStringRef());
    const at::Tensor of_bias =
        ctx->needs_input_grad(1) ? summed(of_input, shared_dims(of_input, 1)) : at::Tensor();
    return {of_input, of_bias, at::Tensor()};
  }
};

using RopeFunction = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool);

struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, bool interleaved) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["interleaved"] = interleaved;
    return below_autograd<RopeFunction>("optimized::rope", x, cos, sin, interleaved);
  }

  // Turned back.
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto handle =
        c10::Dispatcher::singleton().findSchemaOrThrow("optimized::rope", "").typed<RopeFunction>();
    return {handle.call(gradients[0], saved[0], at::neg(saved[1]), ctx->saved_data["interleaved"].toBool()),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Pair add_rms_norm_autograd(const at::Tensor& input, const at::Tensor& residual,
                           at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                           std::optional<double> eps) {
  const auto results = AddRmsNorm::apply(input, residual, normalized_shape, weight, eps);
  return {results[0], results[1]};
}

Pair add_layer_norm_autograd(const at::Tensor& input, const at::Tensor& residual,
                             at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                             const OptionalTensor& bias, double eps) {
  const auto results = AddLayerNorm::apply(input, residual, normalized_shape, weight, bias, eps);
  return {results[0], results[1]};
}

at::Tensor bias_gelu_autograd(const at::Tensor& input, const at::Tensor& bias, std::string_view approximate) {
  return BiasGelu::apply(input, bias, std::string(approximate));
}

at::Tensor rope_autograd(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                         bool interleaved) {
  TORCH_CHECK_NOT_IMPLEMENTED(!cos.requires_grad() && !sin.requires_grad(),
                              "optimized::rope has no gradients for cos and sin: detach() them");
  return Rope::apply(x, cos, sin, interleaved);
}

}  // namespace opsmith::optimized
