// See attention.h.
#include <opsmith/operators/attention.h>

#include <opsmith/generated/operator.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>
#include <c10/core/SymBool.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace opsmith {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

using Attention =
    Operator<"opsmith_fused::attention", "",
             std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                const std::optional<at::Tensor>&, bool, double)>;
using AttentionBackward =
    Operator<"opsmith_fused::attention_backward", "",
             std::tuple<at::Tensor, at::Tensor, at::Tensor>(
                 const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                 const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&, bool, double)>;
using SafeSoftmax = Operator<"opsmith_fused::safe_softmax", "", at::Tensor(const at::Tensor&, int64_t)>;

struct Kernels {
  std::vector<AttentionKernel> forward;
  std::vector<AttentionKernel> backward;
  DtypeSet safe_softmax{};
};

Kernels& kernels() {
  static Kernels all;
  return all;
}

bool is_there(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

// A call as PyTorch asks of it: sizes may be symbols, and operands without data.
struct Asked {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const OptionalTensor& mask;
  double dropout;
  bool is_causal;
  bool enable_gqa;

  bool needs_gradient() const {
    return at::GradMode::is_enabled() &&
           (query.requires_grad() || key.requires_grad() || value.requires_grad() || needs_mask_gradient());
  }
  bool needs_mask_gradient() const {
    return at::GradMode::is_enabled() && is_there(mask) && mask->requires_grad();
  }
};

// Sizes of which nothing is known are taken for different ones.
bool same(const c10::SymInt& a, const c10::SymInt& b) {
  return TORCH_GUARD_OR_FALSE(a.sym_eq(b));
}

bool is_dense_of_four(const at::Tensor& tensor) {
  return !tensor.is_nested() && tensor.layout() == at::kStrided && tensor.dim() == 4;
}

// Gradients of gradients, forward ones and batches of calls (torch.func, vmap) come from the parts.
bool is_transformed(const Asked& asked) {
  const c10::DispatchKeySet active = c10::impl::tls_local_dispatch_key_set().included_;
  const bool has_tangent = asked.query._fw_grad(0).defined() || asked.key._fw_grad(0).defined() ||
                           asked.value._fw_grad(0).defined();
  return has_tangent || active.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         active.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

// Whether the mask broadcasts to the scores and is of the operands' dtype, or of bool, which PyTorch
// converts.
bool fits(const at::Tensor& mask, const Asked& asked) {
  if (mask.is_nested() || mask.dim() > 4 || mask.device() != asked.query.device() ||
      (mask.scalar_type() != at::kBool && mask.scalar_type() != asked.query.scalar_type())) {
    return false;
  }
  const c10::SymInt wanted[4] = {asked.query.sym_size(0), asked.query.sym_size(1), asked.query.sym_size(2),
                                 asked.key.sym_size(2)};
  for (int64_t d = 0; d < mask.dim(); ++d) {
    const c10::SymInt size = mask.sym_size(d);
    if (!same(size, 1) && !same(size, wanted[4 - mask.dim() + d])) {
      return false;
    }
  }
  return true;
}

// Why no kernel can take the call as one operator, whatever it has; null where one could.
const char* obstacle(const Asked& asked) {
  const at::Tensor &query = asked.query, &key = asked.key, &value = asked.value;
  if (!is_dense_of_four(query) || !is_dense_of_four(key) || !is_dense_of_four(value)) {
    return "query, key and value are not dense, of 4 dimensions";
  }
  if (key.scalar_type() != query.scalar_type() || value.scalar_type() != query.scalar_type() ||
      key.device() != query.device() || value.device() != query.device()) {
    return "query, key and value differ in dtype or device";
  }
  if (!same(query.sym_size(0), key.sym_size(0)) || !same(query.sym_size(0), value.sym_size(0)) ||
      !same(key.sym_size(1), value.sym_size(1)) || !same(key.sym_size(2), value.sym_size(2)) ||
      !same(query.sym_size(3), key.sym_size(3))) {
    return "the sizes of query, key and value broadcast";
  }
  for (const c10::SymInt& size : {query.sym_size(0), query.sym_size(1), query.sym_size(2), query.sym_size(3),
                                  key.sym_size(1), key.sym_size(2), value.sym_size(3)}) {
    if (TORCH_GUARD_OR_FALSE(size.sym_eq(0))) {
      return "some size is 0";
    }
  }
  if (!same(query.sym_size(1), key.sym_size(1)) &&
      !(asked.enable_gqa && same(query.sym_size(1) % key.sym_size(1), 0))) {
    return "query has another number of heads than key, without enable_gqa";
  }
  if (is_there(asked.mask) && !fits(*asked.mask, asked)) {
    return "the mask is neither of bool nor of the query's dtype, or does not broadcast to the scores";
  }
  if (is_transformed(asked)) {
    return "torch.func or forward-mode differentiation transforms the call";
  }
  return nullptr;
}

bool takes_dtype(const AttentionKernel& kernel, at::ScalarType dtype) {
  return !kernel.dtypes.has_value() || kernel.dtypes->has(dtype);
}

const char* name_of(unsigned feature) {
  switch (feature) {
    case kDropout:
      return "dropout";
    case kMask:
      return "a mask";
    case kMaskGradient:
      return "the gradient of a mask";
    case kCausal:
      return "is_causal";
    case kGroupedHeads:
      return "fewer heads of keys than of queries";
    default:
      return "values of another dim than the keys'";
  }
}

unsigned features_of(const Asked& asked) {
  unsigned features = 0;
  features |= asked.dropout > 0 ? kDropout : 0;
  features |= is_there(asked.mask) ? kMask : 0;
  features |= asked.needs_mask_gradient() ? kMaskGradient : 0;
  features |= asked.is_causal ? kCausal : 0;
  features |= same(asked.query.sym_size(1), asked.key.sym_size(1)) ? 0 : kGroupedHeads;
  features |= same(asked.query.sym_size(3), asked.value.sym_size(3)) ? 0 : kOtherValueDim;
  return features;
}

// Why none of the kernels takes the call; empty where one does. The one that the operator will be asked of is
// the first that takes the dtype.
std::string refusal(const std::vector<AttentionKernel>& all, const char* what, const Asked& asked) {
  const auto asks = [&](const AttentionKernel& kernel) {
    return takes_dtype(kernel, asked.query.scalar_type());
  };
  const auto kernel = std::find_if(all.begin(), all.end(), asks);
  if (kernel == all.end()) {
    return c10::str("no library has a kernel for ", what, " of ", asked.query.scalar_type());
  }
  if (const unsigned lacking = features_of(asked) & kernel->without; lacking != 0) {
    return c10::str("`", kernel->name, "` does not have ", name_of(lacking & ~(lacking - 1)));
  }
  const c10::SymInt dim = asked.query.sym_size(3);
  const bool is_small = kernel->most_head_dim == 0 || TORCH_GUARD_OR_FALSE(dim.sym_le(kernel->most_head_dim));
  if (!is_small || !same(dim % kernel->head_dim_multiple, 0)) {
    return c10::str("`", kernel->name, "` does not take a head dim of ", dim);
  }
  return "";
}

std::string refusal(const Asked& asked) {
  if (kernels().forward.empty()) {
    return "no library has a kernel for _scaled_dot_product_fused_attention_overrideable";
  }
  if (const char* const found = obstacle(asked)) {
    return found;
  }
  std::string found = refusal(kernels().forward, "attention", asked);
  if (found.empty() && asked.needs_gradient()) {
    found = refusal(kernels().backward, "the gradients of attention", asked);
  }
  return found;
}

// Whether the user has put `math` before `overrideable`. The order that PyTorch starts with is made for its
// own devices, and says nothing of this one.
bool prefers_math() {
  using Backend = at::SDPBackend;
  constexpr std::array<Backend, at::num_sdp_backends> kDefault{
      Backend::flash_attention, Backend::efficient_attention, Backend::math, Backend::cudnn_attention,
      Backend::overrideable};
  const auto order = at::globalContext().sDPPriorityOrder();
  return order != kDefault && std::find(order.begin(), order.end(), Backend::math) <
                                  std::find(order.begin(), order.end(), Backend::overrideable);
}

// The choice for PyTorch's scaled_dot_product_attention: by the kernel that is registered, which may be a
// library's. Below autograd and all transforms, since operands may have no data.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const OptionalTensor& attn_mask, double dropout_p, bool is_causal, std::optional<double> scale,
               bool enable_gqa) {
  return at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), query,
                                                 key, value, attn_mask, dropout_p, is_causal, scale,
                                                 enable_gqa);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

// The bias without the repetitions that an expanded one consists of.
OptionalTensor unexpanded(const OptionalTensor& bias) {
  if (!is_there(bias)) {
    return std::nullopt;
  }
  at::Tensor found = *bias;
  for (int64_t d = 0; d < found.dim(); ++d) {
    if (found.stride(d) == 0 && found.size(d) > 1) {
      found = found.narrow(d, 0, 1);
    }
  }
  return found;
}

}  // namespace

void set_attention_kernels(std::vector<AttentionKernel> forward, std::vector<AttentionKernel> backward,
                           DtypeSet safe_softmax) {
  kernels() = {std::move(forward), std::move(backward), safe_softmax};
}

int64_t _fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& attn_mask, double dropout_p, bool is_causal,
                          std::optional<double> /*scale*/, bool enable_gqa) {
  const at::Context& context = at::globalContext();
  const Asked asked{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const bool may_be_math = context.userEnabledMathSDP(), may_be_fused = context.userEnabledOverrideableSDP();
  if (may_be_fused && !(may_be_math && prefers_math()) && refusal(asked).empty()) {
    return static_cast<int64_t>(at::SDPBackend::overrideable);
  }
  if (!may_be_math) {
    const std::string reason =
        may_be_fused ? refusal(asked) : "torch.nn.attention.sdpa_kernel leaves OVERRIDEABLE out";
    TORCH_CHECK(false, "scaled_dot_product_attention on ", query.device(),
                ": No viable backend was found: MATH is turned off, and OVERRIDEABLE cannot take the call: ",
                reason, "\n  remedy: add SDPBackend.MATH to the list of sdpa_kernel");
  }
  return static_cast<int64_t>(at::SDPBackend::math);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const OptionalTensor& attn_bias, double dropout_p, bool is_causal, bool return_debug_mask,
                std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0 && !return_debug_mask,
                              "_scaled_dot_product_fused_attention_overrideable on ", query.device(),
                              ": `opsmith_fused::attention` has neither dropout nor a debug mask\n  remedy: "
                              "call torch.nn.functional.scaled_dot_product_attention, which chooses");
  auto [out, logsumexp] =
      Attention::call(query, key, value, unexpanded(attn_bias), is_causal, scale_of(query, scale));
  // Seed and offset of the dropout that there is none of: compiled graphs save them, and want Tensors.
  return {std::move(out),
          std::move(logsumexp),
          at::Tensor(),
          at::Tensor(),
          query.size(-2),
          key.size(-2),
          at::scalar_tensor(0, at::kLong),
          at::scalar_tensor(0, at::kLong),
          at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/,
    int64_t /*max_q*/, int64_t /*max_k*/, double dropout_p, bool is_causal, const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0 && !grad_input_mask[3],
                              "_scaled_dot_product_fused_attention_overrideable_backward on ", query.device(),
                              ": `opsmith_fused::attention_backward` has neither dropout nor the gradient of "
                              "the bias\n  remedy: call "
                              "torch.nn.functional.scaled_dot_product_attention, which chooses");
  if (!grad_out.defined()) {
    return {};
  }
  // Callers in Python, who have no undefined Tensor, say by one without elements that there is no bias.
  const bool has_bias = attn_bias.defined() && (attn_bias.numel() > 0 || logsumexp.numel() == 0);
  auto [grad_query, grad_key, grad_value] =
      AttentionBackward::call(grad_out, query, key, value, has_bias ? unexpanded(attn_bias) : std::nullopt,
                              out, logsumexp, is_causal, scale_of(query, scale));
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value), at::Tensor()};
}

at::Tensor _safe_softmax(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  const at::Tensor input = dtype.has_value() ? self.to(*dtype) : self;
  if (kernels().safe_softmax.has(input.scalar_type())) {
    return SafeSoftmax::call(input, dim);
  }
  at::Tensor result = at::softmax(input, dim);
  if (result.numel() > 0) {
    result.masked_fill_(at::amax(input, dim, /*keepdim=*/true).eq(-std::numeric_limits<double>::infinity()),
                        0);
  }
  return result;
}

}  // namespace opsmith

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &opsmith::choose)

}  // namespace at::native
