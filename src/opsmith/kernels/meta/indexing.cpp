// Elements by their indices, and their order.
#include "meta_tensors.h"
#include "result_sizes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/List.h>

#include <optional>
#include <tuple>

namespace opsmith::meta_functions {

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.dim() <= 1 || self.size(wrapped) > 0 || index.numel() == 0,
              "index_select(): self indexing axis dim should be positive");
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[wrapped] = index.numel();
  }
  return contiguous(sizes, self.scalar_type());
}

at::Tensor index_put(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& /*indices*/,
                     const at::Tensor& /*values*/, bool /*accumulate*/) {
  return like(self);
}

at::Tensor index_put_impl(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& /*indices*/,
                          const at::Tensor& /*values*/, bool /*accumulate*/, bool /*unsafe*/) {
  return like(self);
}

at::Tensor masked_scatter(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(),
              " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ", mask.scalar_type());
  return contiguous(at::infer_size(self.sizes(), mask.sizes()), self.scalar_type());
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t /*padding_idx*/,
                     bool /*scale_grad_by_freq*/, bool /*sparse*/) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  return contiguous(sizes, weight.scalar_type());
}

at::Tensor embedding_dense_backward(const at::Tensor& grad_output, const at::Tensor& /*indices*/,
                                    int64_t num_weights, int64_t /*padding_idx*/,
                                    bool /*scale_grad_by_freq*/) {
  return contiguous({num_weights, grad_output.size(-1)}, grad_output.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> sort(const at::Tensor& self, int64_t /*dim*/, bool /*descending*/) {
  return {like(self), like(self, at::kLong)};
}

at::Tensor repeat(const at::Tensor& self, at::IntArrayRef repeats) {
  const auto given = static_cast<int64_t>(repeats.size());
  TORCH_CHECK(given >= self.dim(),
              "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  at::DimVector sizes(repeats);
  for (int64_t dim = 0; dim < given; ++dim) {
    const int64_t own = dim - (given - self.dim());
    sizes[dim] = value_of(Checked(repeats[dim]) * (own >= 0 ? self.size(own) : 1), "repeat");
    TORCH_CHECK(sizes[dim] >= 0, "Trying to create tensor with negative dimension ", sizes[dim], ": ",
                at::IntArrayRef(sizes));
  }
  return contiguous(sizes, self.scalar_type());
}

}  // namespace opsmith::meta_functions
