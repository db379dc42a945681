// See transformer.h.  The formulas are those of the documentation of torch.nn.MultiheadAttention and
// torch.nn.TransformerEncoderLayer.
#include <opsmith/operators/transformer.h>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>

namespace opsmith {

namespace {

// As booleans that broadcast to (N, heads, T, T).
at::Tensor broadcast_mask(const at::Tensor& mask, std::optional<int64_t> mask_type) {
  TORCH_CHECK(mask_type.has_value(), "Mask Type should be defined");
  const at::Tensor masked = mask.to(at::kBool);
  return *mask_type == 1 ? masked.unsqueeze(1).unsqueeze(2) : masked;
}

// (N, T, E) → (N, heads, T, E / heads).
at::Tensor heads_of(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);
}

struct Projections {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

Projections project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t heads,
                    const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<at::Tensor> parts;
  if (query.is_same(key) && key.is_same(value)) {
    parts = at::linear(query, weight, bias).chunk(3, -1);
  } else {
    const std::vector<at::Tensor> weights = weight.chunk(3, 0), biases = bias.chunk(3, 0);
    parts = {at::linear(query, weights[0], biases[0]), at::linear(key, weights[1], biases[1]),
             at::linear(value, weights[2], biases[2])};
  }
  return {heads_of(parts[0], heads), heads_of(parts[1], heads), heads_of(parts[2], heads)};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> _native_multi_head_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, int64_t embed_dim,
    int64_t num_head, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias, const at::Tensor& proj_weight,
    const at::Tensor& proj_bias, const std::optional<at::Tensor>& mask, bool need_weights,
    bool average_attn_weights, std::optional<int64_t> mask_type) {
  const bool is_masked = mask.has_value() && mask->defined();
  for (const at::Tensor* each : {&query, &key, &value}) {
    TORCH_CHECK(each->dim() == 3, "expected 3-D `query`, `key` and `value`, got ", each->dim(), "-D tensor");
    TORCH_CHECK(each->size(2) == embed_dim, "passed-in embed_dim ", embed_dim,
                " didn't match last dim of query, key or value: ", each->size(2));
  }
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(),
              "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(num_head > 0 && embed_dim % num_head == 0, "`embed_dim` must divide evenly by `num_heads`");
  if (query.numel() == 0) {
    return {at::empty_like(query), at::Tensor()};
  }
  const Projections heads = project(query, key, value, num_head, qkv_weight, qkv_bias);
  at::Tensor attended, weights;
  if (is_masked || need_weights) {
    const double scale = 1 / std::sqrt(static_cast<double>(embed_dim / num_head));
    at::Tensor scores = at::matmul(heads.query * scale, heads.key.transpose(-2, -1));
    if (is_masked) {
      scores.masked_fill_(broadcast_mask(*mask, mask_type), -std::numeric_limits<double>::infinity());
    }
    weights = scores.softmax(-1);
    attended = at::matmul(weights, heads.value);
  } else {
    attended = at::scaled_dot_product_attention(heads.query, heads.key, heads.value);
  }
  if (!need_weights) {
    weights = at::Tensor();
  } else if (average_attn_weights) {
    weights = weights.mean(1);
  }
  return {at::linear(attended.transpose(1, 2).flatten(-2), proj_weight, proj_bias), std::move(weights)};
}

at::Tensor _transformer_encoder_layer_fwd(
    const at::Tensor& src, int64_t embed_dim, int64_t num_heads, const at::Tensor& qkv_weight,
    const at::Tensor& qkv_bias, const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
    bool norm_first, double eps, const at::Tensor& norm_weight_1, const at::Tensor& norm_bias_1,
    const at::Tensor& norm_weight_2, const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
    const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2, const at::Tensor& ffn_bias_2,
    const std::optional<at::Tensor>& mask, std::optional<int64_t> mask_type) {
  if (src.numel() == 0) {
    return src.clone();
  }
  const auto first_norm = [&](const at::Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_1, norm_bias_1, eps);
  };
  const auto second_norm = [&](const at::Tensor& x) {
    return at::layer_norm(x, {embed_dim}, norm_weight_2, norm_bias_2, eps);
  };
  const at::Tensor query = norm_first ? first_norm(src) : src;
  at::Tensor x = std::get<0>(_native_multi_head_attention(
      query, query, query, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
      /*need_weights=*/false, /*average_attn_weights=*/true, mask_type));
  x.add_(src);
  x = norm_first ? x : first_norm(x);
  at::Tensor wide = at::linear(norm_first ? second_norm(x) : x, ffn_weight_1, ffn_bias_1);
  wide = use_gelu ? at::gelu(wide) : wide.relu_();
  const at::Tensor result = at::linear(wide, ffn_weight_2, ffn_bias_2).add_(x);
  return norm_first ? result : second_norm(result);
}

}  // namespace opsmith
