// The fused cells of LSTM and GRU, which PyTorch asks of every accelerator and for which the CPU has no
// kernel to fall back to. They are made of ordinary operators, which the plan serves.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::_thnn_fused_lstm_cell: gates (N, 4H), cx (N, H) → hy, cy (N, H), and the activated gates (N, 4H).
std::tuple<at::Tensor, at::Tensor, at::Tensor> _thnn_fused_lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias);

// aten::_thnn_fused_lstm_cell_backward_impl: the gradients of the gates, of cx, and of either bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> _thnn_fused_lstm_cell_backward_impl(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias);

// aten::_thnn_fused_gru_cell: gates (N, 3H), hx (N, H) → hy (N, H), and what the backward pass needs (N, 5H).
std::tuple<at::Tensor, at::Tensor> _thnn_fused_gru_cell(const at::Tensor& input_gates,
                                                        const at::Tensor& hidden_gates, const at::Tensor& hx,
                                                        const std::optional<at::Tensor>& input_bias,
                                                        const std::optional<at::Tensor>& hidden_bias);

// aten::_thnn_fused_gru_cell_backward: the gradients of both gates, of hx, and of both biases.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> _thnn_fused_gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias);

}  // namespace opsmith
