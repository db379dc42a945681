// Scaled dot-product attention: which way of computing it PyTorch is told to take, and the kernels of that
// way around a library's kernels on lean tensors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <opsmith/generated/dtype_set.h>

namespace opsmith {

// Features that a call may ask for and a kernel need not have.
enum AttentionFeature : unsigned {
  kDropout = 1,
  kMask = 2,
  kMaskGradient = 4,
  kCausal = 8,
  kGroupedHeads = 16,
  kOtherValueDim = 32,
};

// The calls that a kernel takes.
struct AttentionKernel {
  const char* name;
  std::optional<DtypeSet> dtypes;  // all without
  int64_t most_head_dim;           // 0: any
  int64_t head_dim_multiple;
  unsigned without;  // of AttentionFeature
};

// For generated code: the plan's kernels, in the order in which they are asked, and the dtypes of
// opsmith_fused::safe_softmax. Called when the library is loaded.
void set_attention_kernels(std::vector<AttentionKernel> forward, std::vector<AttentionKernel> backward,
                           DtypeSet safe_softmax);

// aten::_fused_sdp_choice, an at::SDPBackend: `overrideable` where a kernel takes the call, else `math`; as
// far as torch.nn.attention.sdpa_kernel allows either. Throws RuntimeError where it allows none that could.
int64_t _fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
                          std::optional<double> scale, bool enable_gqa);

// aten::_scaled_dot_product_fused_attention_overrideable and its backward, by opsmith_fused::attention and
// opsmith_fused::attention_backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
                bool return_debug_mask, std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& cum_seq_q, const at::Tensor& cum_seq_k, int64_t max_q,
    int64_t max_k, double dropout_p, bool is_causal, const at::Tensor& philox_seed,
    const at::Tensor& philox_offset, std::optional<double> scale);

// aten::_safe_softmax: softmax, and 0 where all elements along the dimension are -inf.
at::Tensor _safe_softmax(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype);

}  // namespace opsmith
