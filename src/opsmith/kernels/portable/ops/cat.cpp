// cat and stack: each tensor is copied, and converted where dtypes differ, to its part of the result.
#include "../common_dtype.h"
#include "../movement.h"

namespace opsmith::portable::native {
namespace {

using executorch::aten::TensorList;

// A tensor of the old form of an empty one, which may stand among tensors of any rank.
bool counts(const Tensor& tensor) {
  return tensor.dim() != 1 || tensor.sizes()[0] != 0;
}

// Whether the tensors may be written to `out`, as ATen asks of both operators, and lie as it does.
bool are_storable(KernelRuntimeContext& context, TensorList tensors, const Tensor& out) {
  for (const Tensor& tensor : tensors) {
    if (!can_store(context, tensor.scalar_type(), out) || !one_layout(context, {&out, &tensor})) {
      return false;
    }
  }
  return true;
}

}  // namespace

Tensor& cat_out(KernelRuntimeContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  OPSMITH_CHECK(context, !tensors.empty(), InvalidArgument, out,
                "torch.cat(): expected a non-empty list of Tensors");
  const Tensor* model = nullptr;
  for (const Tensor& tensor : tensors) {
    OPSMITH_CHECK(context, tensor.dim() != 0, InvalidArgument, out,
                  "zero-dimensional tensor (at position %d) cannot be concatenated",
                  static_cast<int>(&tensor - tensors.data()));
    if (model == nullptr && counts(tensor)) {
      model = &tensor;
    }
  }
  if (model == nullptr) {
    resize(context, out, {0});
    return out;
  }
  const int64_t d = wrap_dim(context, dim, model->dim());
  if (d < 0) {
    return out;
  }
  Dims sizes = sizes_of(*model);
  sizes[d] = 0;
  for (const Tensor& tensor : tensors) {
    if (!counts(tensor)) {
      continue;
    }
    Dims expected = sizes_of(*model);
    OPSMITH_CHECK(context, tensor.dim() == model->dim(), InvalidArgument, out,
                  "Tensors must have same number of dimensions: got %d and %d",
                  static_cast<int>(model->dim()), static_cast<int>(tensor.dim()));
    expected[d] = tensor.sizes()[d];
    OPSMITH_CHECK(context, sizes_of(tensor) == expected, InvalidArgument, out,
                  "Sizes of tensors must match except in dimension %" PRId64, d);
    sizes[d] += tensor.sizes()[d];
  }
  if (!resize(context, out, sizes) || !are_storable(context, tensors, out)) {
    return out;
  }
  Destination to = destination_of(out);
  for (const Tensor& tensor : tensors) {
    if (counts(tensor)) {
      if (!convert_strided(context, sizes_of(tensor), tensor.scalar_type(), source_of(tensor),
                           out.scalar_type(), to)) {
        return out;
      }
      to.data += tensor.sizes()[d] * to.strides[d] * out.element_size();
    }
  }
  return out;
}

Tensor& stack_out(KernelRuntimeContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  OPSMITH_CHECK(context, !tensors.empty(), InvalidArgument, out, "stack expects a non-empty TensorList");
  const Dims part = sizes_of(tensors[0]);
  const int64_t d = wrap_dim(context, dim, part.rank + 1);
  if (d < 0) {
    return out;
  }
  OPSMITH_CHECK(context, part.rank < kMaxDims, NotSupported, out, "stack: too many dimensions");
  for (const Tensor& tensor : tensors) {
    OPSMITH_CHECK(context, sizes_of(tensor) == part, InvalidArgument, out,
                  "stack expects each tensor to be equal size, but entry %d is of another size than entry 0",
                  static_cast<int>(&tensor - tensors.data()));
  }
  Dims sizes = part;
  sizes.insert(d, static_cast<int64_t>(tensors.size()));
  if (!resize(context, out, sizes) || !are_storable(context, tensors, out)) {
    return out;
  }
  Destination to = destination_of(out);
  const int64_t step = to.strides[d] * out.element_size();
  to.strides.erase(d);
  for (const Tensor& tensor : tensors) {
    if (!convert_strided(context, part, tensor.scalar_type(), source_of(tensor), out.scalar_type(), to)) {
      return out;
    }
    to.data += step;
  }
  return out;
}

}  // namespace opsmith::portable::native
