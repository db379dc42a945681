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

at::Tensor index_put(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                     const at::Tensor& /*values*/, bool /*accumulate*/) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (index.has_value() && index->defined() && index->scalar_type() == at::kByte) {
      TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
    }
  }
  return like(self);
}

at::Tensor index_put_impl(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices,
                          const at::Tensor& values, bool accumulate, bool /*unsafe*/) {
  return index_put(self, indices, values, accumulate);
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

namespace {

using Bagged = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Bagged bagged(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets, int64_t mode,
              const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
              int64_t padding_idx, bool is_forward_only) {
  // ATen's text; of two dimensions its own kernels make no bags either.
  TORCH_CHECK(indices.dim() == 1, "input has to be a ", indices.dim() == 2 ? "1D" : "1D or 2D",
              " Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets.dim());
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  const bool is_max = mode == 2;
  // The CPU adds up rows of these without it, and returns none.
  const bool needs_no_map =
      mode == 0 && padding_idx < 0 && weight.stride(1) == 1 &&
      (weight.scalar_type() == at::kFloat || at::isReducedFloatingType(weight.scalar_type())) &&
      (!per_sample_weights.has_value() || !per_sample_weights->defined() ||
       per_sample_weights->stride(0) == 1);
  const at::ScalarType dtype = at::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const int64_t numbers = mode == 0 && is_forward_only ? offsets.size(0) : bags;
  return {contiguous({bags, weight.size(1)}, weight.scalar_type()),
          contiguous({needs_no_map ? 0 : indices.size(0)}, dtype), contiguous({numbers}, dtype),
          is_max ? contiguous({bags, weight.size(1)}, dtype) : contiguous({numbers}, dtype)};
}

}  // namespace

Bagged embedding_bag(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
                     bool /*scale_grad_by_freq*/, int64_t mode, bool /*sparse*/,
                     const std::optional<at::Tensor>& per_sample_weights, bool include_last_offset,
                     int64_t padding_idx) {
  return bagged(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx,
                /*is_forward_only=*/false);
}

Bagged embedding_bag_forward_only(const at::Tensor& weight, const at::Tensor& indices,
                                  const at::Tensor& offsets, bool /*scale_grad_by_freq*/, int64_t mode,
                                  bool /*sparse*/, const std::optional<at::Tensor>& per_sample_weights,
                                  bool include_last_offset, int64_t padding_idx) {
  return bagged(weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx,
                /*is_forward_only=*/true);
}

// Of a result whose first size depends on elements: its rank and dtype, and that each column lies in one
// piece.
at::Tensor nonzero(const at::Tensor& self) {
  return at::detail::empty_strided_meta({2, self.dim()}, {1, 2}, at::kLong);
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  return contiguous({0}, self.scalar_type());
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
