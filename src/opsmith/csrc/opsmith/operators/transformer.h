// The layers of a transformer that PyTorch's modules call whole in inference, on this device as on the CPU.
// They are made of ordinary operators, which the plan serves, rather than run on the CPU.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace opsmith {

// aten::_native_multi_head_attention: query, key and value (N, T, E) → (N, T, E), and with `need_weights` the
// attention's weights, (N, T, T) averaged over the heads or (N, heads, T, T).  Where `mask` is true nothing
// is attended to: it is (T, T) of `mask_type` 0, (N, T) of keys of 1, and (N, heads, T, T) of 2.
std::tuple<at::Tensor, at::Tensor> _native_multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t embed_dim,
    int64_t num_head, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias, const at::Tensor& proj_weight,
    const at::Tensor& proj_bias, const std::optional<at::Tensor>& mask, bool need_weights,
    bool average_attn_weights, std::optional<int64_t> mask_type);

// aten::_transformer_encoder_layer_fwd: torch.nn.TransformerEncoderLayer of (N, T, E).
at::Tensor _transformer_encoder_layer_fwd(
    const at::Tensor& src, int64_t embed_dim, int64_t num_heads, const at::Tensor& qkv_weight,
    const at::Tensor& qkv_bias, const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
    bool norm_first, double eps, const at::Tensor& norm_weight_1, const at::Tensor& norm_bias_1,
    const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
    const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2, const at::Tensor& ffn_bias_2,
    const std::optional<at::Tensor>& mask, std::optional<int64_t> mask_type);

}  // namespace opsmith
