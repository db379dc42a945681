// The part of ExecuTorch's lean Tensor that its headers only declare, for kernels that run on a PyTorch
// device. A Tensor there has the shape that PyTorch's meta function gave it, so it is static and resizing is
// checking; one that is not is resized within its memory, as ExecuTorch does. An Unsized one is allocated.
#include <lean/rejected_shape.h>
#include <lean/unsized.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

namespace opsmith {
namespace {

thread_local RejectedShape refused;
thread_local Unsized* innermost = nullptr;

}  // namespace

RejectedShape take_rejected_shape() {
  return std::exchange(refused, RejectedShape{});
}

Unsized::Unsized() : outer_(std::exchange(innermost, this)) {}

Unsized::~Unsized() {
  innermost = outer_;
}

Unsized* Unsized::of(const void* impl) {
  Unsized* found = innermost;
  while (found != nullptr && found->stood_for_ != impl) {
    found = found->outer_;
  }
  return found;
}

}  // namespace opsmith

namespace executorch::runtime {
namespace etensor {

TensorImpl::TensorImpl(ScalarType type, ssize_t dim, SizesType* sizes, void* data, DimOrderType* dim_order,
                       StridesType* strides, TensorShapeDynamism dynamism, DeviceType device_type,
                       DeviceIndex device_index)
    : sizes_(sizes),
      dim_order_(dim_order),
      strides_(strides),
      data_(data),
      dim_(dim),
      numel_(compute_numel(sizes, dim)),
      numel_bound_(static_cast<size_t>(numel_)),
      type_(type),
      shape_dynamism_(dynamism),
      device_(device_type, device_index) {}

ssize_t TensorImpl::element_size() const {
  return static_cast<ssize_t>(elementSize(type_));
}

size_t TensorImpl::nbytes() const {
  return static_cast<size_t>(numel_) * elementSize(type_);
}

Error TensorImpl::internal_resize_contiguous(ArrayRef<SizesType> new_sizes) {
  opsmith::Unsized* const unsized = opsmith::Unsized::of(this);
  if (unsized != nullptr && new_sizes.size() == static_cast<size_t>(dim_)) {
    data_ = unsized->allocate(new_sizes.data());
    std::copy(new_sizes.begin(), new_sizes.end(), sizes_);
    numel_ = compute_numel(sizes_, dim_);
    return dim_order_to_stride(sizes_, dim_order_, static_cast<size_t>(dim_), strides_);
  }
  if (new_sizes.size() == static_cast<size_t>(dim_) &&
      std::equal(new_sizes.begin(), new_sizes.end(), sizes_)) {
    return Error::Ok;
  }
  if (shape_dynamism_ != TensorShapeDynamism::STATIC && new_sizes.size() == static_cast<size_t>(dim_)) {
    const ssize_t numel = compute_numel(new_sizes.data(), dim_);
    if (numel >= 0 && static_cast<size_t>(numel) <= numel_bound_) {
      std::copy(new_sizes.begin(), new_sizes.end(), sizes_);
      numel_ = numel;
      return dim_order_to_stride(sizes_, dim_order_, static_cast<size_t>(dim_), strides_);
    }
  }
  if (new_sizes.size() <= opsmith::refused.sizes.size()) {
    opsmith::refused.wanted = true;
    opsmith::refused.dim = new_sizes.size();
    std::copy(new_sizes.begin(), new_sizes.end(), opsmith::refused.sizes.begin());
  }
  ET_LOG(Error, "it gives its result another shape than PyTorch's meta function does");
  return Error::NotSupported;
}

ssize_t compute_numel(const TensorImpl::SizesType* sizes, ssize_t dim) {
  ssize_t numel = 1;
  for (ssize_t i = 0; i < dim; ++i) {
    numel *= sizes[i];
  }
  return numel;
}

Result<ssize_t> safe_numel(const TensorImpl::SizesType* sizes, ssize_t dim) {
  // Sizes that came from PyTorch fit.
  return compute_numel(sizes, dim);
}

}  // namespace etensor

namespace internal {

class TensorResizerFriend {
 public:
  static Error resize(etensor::TensorImpl* impl, ArrayRef<etensor::TensorImpl::SizesType> sizes) {
    return impl->internal_resize_contiguous(sizes);
  }
};

Error resize_tensor_impl(etensor::TensorImpl* impl, ArrayRef<etensor::TensorImpl::SizesType> new_sizes) {
  return TensorResizerFriend::resize(impl, new_sizes);
}

Error copy_tensor_data(const etensor::Tensor& to, const etensor::Tensor& from) {
  ET_CHECK_OR_RETURN_ERROR(to.nbytes() == from.nbytes(), InvalidArgument,
                           "Tensors of %zu and %zu bytes cannot be copied", to.nbytes(), from.nbytes());
  if (from.nbytes() > 0 && to.const_data_ptr() != from.const_data_ptr()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  }
  return Error::Ok;
}

}  // namespace internal

Error get_dim_order(const etensor::Tensor& tensor, etensor::TensorImpl::DimOrderType* order, size_t size) {
  ET_CHECK_OR_RETURN_ERROR(size == tensor.dim_order().size(), InvalidArgument,
                           "a dim order of %zu dimensions is asked for, and there are %zu", size,
                           tensor.dim_order().size());
  std::copy_n(tensor.dim_order().data(), size, order);
  return Error::Ok;
}

bool tensor_has_valid_dim_order(etensor::Tensor) {
  return true;  // as the bridge made it
}

bool tensor_is_default_dim_order(etensor::Tensor tensor) {
  const auto order = tensor.dim_order();
  return is_contiguous_dim_order(order.data(), order.size());
}

bool tensor_is_channels_last_dim_order(etensor::Tensor tensor) {
  const auto order = tensor.dim_order();
  return is_channels_last_dim_order(order.data(), order.size());
}

bool tensor_is_default_or_channels_last_dim_order(etensor::Tensor tensor) {
  return tensor_is_default_dim_order(tensor) || tensor_is_channels_last_dim_order(tensor);
}

bool tensors_have_same_dim_order(const ArrayRef<etensor::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    const auto first = tensors[0].dim_order();
    const auto order = tensor.dim_order();
    if (order.size() != first.size() || !std::equal(order.begin(), order.end(), first.begin())) {
      return false;
    }
  }
  return true;
}

}  // namespace executorch::runtime
