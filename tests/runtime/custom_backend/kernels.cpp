// Kernels for test_custom_operators.py. Each runs ATen's CPU operators on the host's view of the device's
// memory, so that what is tested is the code around them.
#include <opsmith/host_access.h>
#include <opsmith/random_numbers.h>
#include <opsmith/generated/operator.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <torch/csrc/autograd/custom_function.h>

namespace chip {

namespace {

// The same elements as a CPU tensor. The caller of a kernel has waited for the device.
at::Tensor host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(opsmith::host_pointer(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

std::vector<at::Tensor> host(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(host(tensor));
  }
  return result;
}

void write(const at::Tensor& result, const at::Tensor& out) {
  at::native::resize_output(out, result.sizes());
  host(out).copy_(result);
}

}  // namespace

at::Tensor scale(const at::Tensor& self, double factor) {
  return at::mul(host(self), factor).to(self.scalar_type()).to(self.device());
}

at::Tensor& gelu_mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  write(at::mul(at::gelu(host(self)), host(other)), out);
  return out;
}

at::Tensor& bump_(at::Tensor& self, const at::Scalar& by) {
  host(self).add_(by);
  return self;
}

std::tuple<at::Tensor&, at::Tensor&> top(const at::Tensor& self, int64_t k, at::Tensor& values,
                                         at::Tensor& indices) {
  const auto [top, places] = at::topk(host(self), k);
  write(top, values);
  write(places, indices);
  return std::forward_as_tuple(values, indices);
}

std::tuple<at::Tensor, at::Tensor> top_meta(const at::Tensor& self, c10::SymInt k) {
  c10::SymDimVector sizes(self.sym_sizes());
  sizes.back() = std::move(k);
  return std::make_tuple(at::empty_symint(sizes, self.options()),
                         at::empty_symint(sizes, self.options().dtype(at::kLong)));
}

at::Tensor mix(at::TensorList tensors, const std::optional<at::Tensor>& weight, int64_t size,
               at::IntArrayRef call_, c10::string_view how, bool negate, std::optional<at::ScalarType> dtype,
               std::optional<at::ArrayRef<double>> shape_) {
  at::Tensor result = at::stack(host(tensors));
  result = how == "sum" ? result.sum(0) : result.mean(0);
  if (weight.has_value()) {
    result = result * host(*weight);
  }
  result = result.sum() * call_[0] * call_[1];
  if (shape_.has_value()) {
    result = result + (*shape_)[0];
  }
  result = (negate ? -result : result).expand({size}).to(dtype.value_or(tensors[0].scalar_type()));
  return result.contiguous().to(tensors[0].device());
}

at::Tensor mix_meta(at::TensorList tensors, const std::optional<at::Tensor>& /*weight*/, c10::SymInt size,
                    at::IntArrayRef /*call_*/, c10::string_view /*how*/, bool /*negate*/,
                    std::optional<at::ScalarType> dtype, std::optional<at::ArrayRef<double>> /*shape_*/) {
  return at::empty_symint({std::move(size)},
                          tensors[0].options().dtype(dtype.value_or(tensors[0].scalar_type())));
}

std::vector<at::Tensor> double_all(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(scale(tensor, 2));
  }
  return result;
}

void accumulate(at::Tensor& total, const at::Tensor& value) {
  host(total).add_(host(value));
}

at::Tensor exchange(at::Tensor& slot, const at::Tensor& value) {
  at::Tensor before = at::empty_like(slot);
  host(before).copy_(host(slot));
  host(slot).copy_(host(value));
  return before;
}

at::Tensor float_only(const at::Tensor& self) {
  return scale(self, 1);
}

at::Tensor untraced(const at::Tensor& self) {
  return scale(self, 1);
}

at::Tensor weigh(const at::Tensor& self, const at::Tensor& weight) {
  return at::mul(host(self), host(weight)).to(self.device());
}

std::tuple<at::Tensor, at::Tensor> weigh_backward(const at::Tensor& grad_result, const at::Tensor& self,
                                                  const at::Tensor& weight, const at::Tensor& result,
                                                  std::array<bool, 2> needs) {
  return {needs[0] ? weigh(grad_result, weight) : at::Tensor(),
          needs[1] ? weigh(grad_result, self) : at::Tensor()};
}

at::Tensor cube(const at::Tensor& self, double factor) {
  return at::mul(at::pow(host(self), 3), factor).to(self.device());
}

namespace {

class Cube : public torch::autograd::Function<Cube> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self,
                            double factor) {
    context->save_for_backward({self});
    context->saved_data["factor"] = factor;
    const at::AutoDispatchBelowAutograd below;
    return opsmith::Operator<"myop::cube", "", at::Tensor(const at::Tensor&, double)>::call(self, factor);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor self = context->get_saved_variables()[0];
    const double factor = context->saved_data["factor"].toDouble();
    return {at::mul(at::mul(gradients[0], at::mul(self, self)), 3 * factor), at::Tensor()};
  }
};

}  // namespace

at::Tensor cube_autograd(const at::Tensor& self, double factor) {
  return Cube::apply(self, factor);
}

// Uniform random numbers in the shape of self.
at::Tensor noise(const at::Tensor& self, std::optional<at::Generator> generator) {
  const auto count = static_cast<uint64_t>(self.numel());
  const opsmith::PhiloxNumbers taken = opsmith::take_philox_numbers(count, generator);
  at::Tensor result = at::empty(self.sizes(), self.options());
  float* const out = opsmith::host_data<float>(result);
  for (uint64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(opsmith::philox(taken.seed, (taken.offset + i) / 4)[i % 4] >> 8) * 0x1p-24f;
  }
  return result;
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  write(at::mul(host(self), host(other)), out);
  return out;
}

}  // namespace chip
