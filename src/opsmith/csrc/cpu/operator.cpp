#include <cpu/operator.h>

namespace opsmith::detail {

at::Tensor zeros_like_meta(const at::Tensor& meta) {
  return meta.is_meta() ? at::zeros(meta.sizes(), meta.options().device(at::kCPU)) : meta;
}

std::optional<at::Tensor> zeros_like_meta(const std::optional<at::Tensor>& meta) {
  return meta.has_value() && meta->defined() ? std::optional(zeros_like_meta(*meta)) : meta;
}

std::vector<at::Tensor> zeros_like_meta(at::TensorList metas) {
  std::vector<at::Tensor> zeros;
  zeros.reserve(metas.size());
  for (const at::Tensor& meta : metas) {
    zeros.push_back(zeros_like_meta(meta));
  }
  return zeros;
}

std::vector<int64_t> sizes_of(const RejectedShape& shape) {
  return {shape.sizes.begin(), shape.sizes.begin() + shape.dim};
}

}  // namespace opsmith::detail
