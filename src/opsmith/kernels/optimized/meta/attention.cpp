// The meta kernels of attention: as PyTorch's of _scaled_dot_product_fused_attention_overrideable, so that a
// compiled graph's strides are the kernel's.
#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/SymIntArrayRef.h>

#include <opsmith/generated/empty_meta_like.h>

namespace opsmith::optimized {
namespace {

at::Tensor like(const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return at::empty_like(tensor);
  }
  return empty_meta_like(tensor, tensor.scalar_type());
}

// A result of the query's sizes but the last, with its dimensions in the same order in memory; those along
// which the query repeats itself come outermost.
at::Tensor in_order_of(const at::Tensor& query, const c10::SymInt& last) {
  if (query.sym_size(-1) == last) {
    return like(query);
  }
  c10::SymDimVector sizes(query.sym_sizes());
  sizes.back() = last;
  std::vector<size_t> inner_to_outer(sizes.size());
  std::iota(inner_to_outer.begin(), inner_to_outer.end(), size_t{0});
  const c10::SymIntArrayRef strides = query.sym_strides();
  std::stable_sort(inner_to_outer.begin(), inner_to_outer.end(), [&](size_t a, size_t b) {
    const bool repeats = strides[a] == 0;
    return repeats || strides[b] == 0 ? !repeats : strides[a] < strides[b];
  });
  c10::SymDimVector found(sizes.size());
  c10::SymInt stride = 1;
  for (const size_t dim : inner_to_outer) {
    found[dim] = stride;
    stride *= sizes[dim];
  }
  return at::empty_strided_symint(sizes, found, query.options());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention_meta(const at::Tensor& query, const at::Tensor& /*key*/,
                                                  const at::Tensor& value,
                                                  const std::optional<at::Tensor>& /*bias*/,
                                                  bool /*is_causal*/, double /*scale*/) {
  TORCH_CHECK(query.dim() == 4 && value.dim() == 4,
              "attention: query, key and value are [batch, heads, length, dim]");
  const c10::SymIntArrayRef sizes = query.sym_sizes();
  return {in_order_of(query, value.sym_size(-1)),
          at::empty_symint(sizes.slice(0, 3), query.options().dtype(at::kFloat))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward_meta(
    const at::Tensor& /*grad_out*/, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& /*bias*/, const at::Tensor& /*out*/, const at::Tensor& /*logsumexp*/,
    bool /*is_causal*/, double /*scale*/) {
  return {like(query), like(key), like(value)};
}

at::Tensor safe_softmax_meta(const at::Tensor& self, int64_t /*dim*/) {
  if (self.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return at::empty_symint(self.sym_sizes(), self.options());
  }
  return at::detail::empty_meta(self.sizes(), self.scalar_type());
}

}  // namespace opsmith::optimized
