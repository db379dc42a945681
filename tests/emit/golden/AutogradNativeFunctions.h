// linear, backward (chiplib, kernels.yaml:6:6)
namespace chip {
::std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(
    const at::Tensor& grad_result, const at::Tensor& input, const at::Tensor& weight,
    const ::std::optional<at::Tensor>& bias, const at::Tensor& result, ::std::array<bool, 3> needs);
}

// matmul, autograd (chiplib, kernels.yaml:8:6)
namespace chip {
at::Tensor matmul_autograd(const at::Tensor& self, const at::Tensor& other);
}

// mul.out, backward (chiplib, kernels.yaml:5:6)
namespace chip {
::std::tuple<at::Tensor, at::Tensor> mul_backward(const at::Tensor& grad_result, const at::Tensor& self,
                                                  const at::Tensor& other, ::std::array<bool, 2> needs);
}

// sigmoid, autograd (chiplib, kernels.yaml:9:6)
namespace chip {
at::Tensor sigmoid_autograd(const at::Tensor& self);
}
