// What PyTorch's kernels for sparse tensors, though made of other operators, ask of each device besides.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>

namespace opsmith {
namespace {

// The positions of elements in a tensor of `sizes`; the columns of `indices` are their coordinates.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor positions = indices.select(0, 0);
  for (size_t dim = 1; dim < sizes.size(); ++dim) {
    positions = positions.mul(sizes[dim]).add_(indices.select(0, static_cast<int64_t>(dim)));
  }
  return positions;
}

}  // namespace
}  // namespace opsmith

namespace at::native {

// As in ATen/native/sparse/SparseStubs.h, which is not installed.
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef sizes);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &opsmith::flatten_indices)

}  // namespace at::native
