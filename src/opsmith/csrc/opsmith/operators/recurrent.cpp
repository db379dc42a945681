// See recurrent.h. The formulas are those of torch.nn.LSTMCell's and torch.nn.GRUCell's documentation.
#include <opsmith/operators/recurrent.h>

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

namespace opsmith {

namespace {

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

bool is_given(const std::optional<at::Tensor>& gradient) {
  return gradient.has_value() && gradient->defined();
}

// The derivative of sigmoid and of tanh, in terms of the function's value.
at::Tensor sigmoid_slope(const at::Tensor& value) {
  return value * (1 - value);
}
at::Tensor tanh_slope(const at::Tensor& value) {
  return 1 - value * value;
}

at::Tensor bias_gradient(const at::Tensor& grad_gates, bool has_bias) {
  return has_bias ? grad_gates.sum(0, /*keepdim=*/false) : at::Tensor();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> _thnn_fused_lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid();
  const at::Tensor forget = parts[1].sigmoid();
  const at::Tensor cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid();
  at::Tensor cy = forget * cx + in * cell;
  at::Tensor hy = out * cy.tanh();
  return std::make_tuple(std::move(hy), std::move(cy), at::cat({in, forget, cell, out}, 1));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> _thnn_fused_lstm_cell_backward_impl(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!is_given(grad_hy) && !is_given(grad_cy)) {
    return {};
  }
  const std::vector<at::Tensor> gates = workspace.chunk(4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor grad_cell_state = is_given(grad_cy) ? *grad_cy : at::zeros_like(cy);
  at::Tensor grad_out = at::zeros_like(cy);
  if (is_given(grad_hy)) {
    grad_cell_state = grad_cell_state + *grad_hy * out * tanh_slope(tanh_cy);
    grad_out = *grad_hy * tanh_cy * sigmoid_slope(out);
  }
  const at::Tensor grad_gates =
      at::cat({grad_cell_state * cell * sigmoid_slope(in), grad_cell_state * cx * sigmoid_slope(forget),
               grad_cell_state * in * tanh_slope(cell), grad_out},
              1);
  return std::make_tuple(grad_gates, grad_cell_state * forget, bias_gradient(grad_gates, has_bias));
}

std::tuple<at::Tensor, at::Tensor> _thnn_fused_gru_cell(const at::Tensor& input_gates,
                                                        const at::Tensor& hidden_gates, const at::Tensor& hx,
                                                        const std::optional<at::Tensor>& input_bias,
                                                        const std::optional<at::Tensor>& hidden_bias) {
  const std::vector<at::Tensor> from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const std::vector<at::Tensor> from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const at::Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const at::Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return std::make_tuple((hx - candidate) * update + candidate,
                         at::cat({reset, update, candidate, hx, from_hidden[2]}, 1));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> _thnn_fused_gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const std::vector<at::Tensor> saved = workspace.chunk(5, 1);
  const at::Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hx = saved[3];
  const at::Tensor& hidden_candidate = saved[4];
  const at::Tensor grad_update = grad_hy * (hx - candidate) * sigmoid_slope(update);
  const at::Tensor grad_candidate = grad_hy * (1 - update) * tanh_slope(candidate);
  const at::Tensor grad_reset = grad_candidate * hidden_candidate * sigmoid_slope(reset);
  const at::Tensor grad_input_gates = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const at::Tensor grad_hidden_gates = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  return std::make_tuple(grad_input_gates, grad_hidden_gates, grad_hy * update,
                         bias_gradient(grad_input_gates, has_bias),
                         bias_gradient(grad_hidden_gates, has_bias));
}

}  // namespace opsmith
