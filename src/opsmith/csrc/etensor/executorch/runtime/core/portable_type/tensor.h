// Tensor, and the TensorImpl that it points to: sizes, strides, the order of dimensions in memory, elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/portable_type/scalar_type.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/platform/compiler.h>

#define ET_PRI_TENSOR_SIZE "zd"
#define ET_PRI_TENSOR_DIM "zd"
#define ET_PRI_TENSOR_NUMEL "zd"
#define ET_PRI_SIZES_AND_STRIDES "d"

namespace executorch::runtime {

enum class TensorShapeDynamism : uint8_t { STATIC = 0, DYNAMIC_BOUND = 1, DYNAMIC_UNBOUND = 2 };

namespace internal {
class TensorResizerFriend;
}

namespace etensor {

enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1 };
enum class Layout : int8_t { Strided = 0 };
enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;

struct Device final {
  using Type = DeviceType;

  Device(DeviceType type, DeviceIndex index = 0) : type_(type), index_(index) {}
  DeviceType type() const noexcept { return type_; }
  DeviceIndex index() const noexcept { return index_; }
  bool is_cpu() const noexcept { return type_ == DeviceType::CPU; }
  bool operator==(const Device& other) const noexcept {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const noexcept { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

class TensorImpl {
 public:
  using SizesType = int32_t;
  using DimOrderType = uint8_t;
  using StridesType = int32_t;

  // Keeps the pointers.
  TensorImpl(ScalarType type, ssize_t dim, SizesType* sizes, void* data = nullptr,
             DimOrderType* dim_order = nullptr, StridesType* strides = nullptr,
             TensorShapeDynamism dynamism = TensorShapeDynamism::STATIC,
             DeviceType device_type = DeviceType::CPU, DeviceIndex device_index = 0);
  TensorImpl() = delete;

  ScalarType scalar_type() const { return type_; }
  ScalarType dtype() const { return type_; }
  ssize_t element_size() const;
  size_t nbytes() const;
  ssize_t numel() const { return numel_; }
  ssize_t dim() const { return dim_; }
  ssize_t size(ssize_t dim) const {
    ET_CHECK_MSG(dim >= 0 && dim < dim_, "dimension %zd of a Tensor that has %zd", dim, dim_);
    return sizes_[dim];
  }
  const ArrayRef<SizesType> sizes() const { return {sizes_, static_cast<size_t>(dim_)}; }
  const ArrayRef<DimOrderType> dim_order() const { return {dim_order_, static_cast<size_t>(dim_)}; }
  const ArrayRef<StridesType> strides() const { return {strides_, static_cast<size_t>(dim_)}; }
  TensorShapeDynamism shape_dynamism() const { return shape_dynamism_; }
  Device device() const { return device_; }
  DeviceType device_type() const { return device_.type(); }
  DeviceIndex device_index() const { return device_.index(); }

  const void* data() const { return data_; }
  void* mutable_data() const { return data_; }
  void set_data(void* data) { data_ = data; }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(data());
  }
  template <class T>
  T* mutable_data() const {
    return static_cast<T*>(mutable_data());
  }

 private:
  friend class ::executorch::runtime::internal::TensorResizerFriend;
  ET_NODISCARD Error internal_resize_contiguous(ArrayRef<SizesType> new_sizes);

  SizesType* sizes_;
  DimOrderType* dim_order_;
  StridesType* strides_;
  void* data_;
  const ssize_t dim_;
  ssize_t numel_;
  size_t numel_bound_;
  const ScalarType type_;
  const TensorShapeDynamism shape_dynamism_;
  Device device_;
};

class Tensor {
 public:
  using SizesType = TensorImpl::SizesType;
  using DimOrderType = TensorImpl::DimOrderType;
  using StridesType = TensorImpl::StridesType;

  Tensor() = delete;
  explicit constexpr Tensor(TensorImpl* impl) : impl_(impl) {}

  TensorImpl* unsafeGetTensorImpl() const { return impl_; }
  ScalarType scalar_type() const { return impl_->scalar_type(); }
  ScalarType dtype() const { return impl_->scalar_type(); }
  ssize_t element_size() const { return impl_->element_size(); }
  size_t nbytes() const { return impl_->nbytes(); }
  ssize_t numel() const { return impl_->numel(); }
  ssize_t dim() const { return impl_->dim(); }
  ssize_t size(ssize_t dim) const { return impl_->size(dim); }
  const ArrayRef<SizesType> sizes() const { return impl_->sizes(); }
  const ArrayRef<DimOrderType> dim_order() const { return impl_->dim_order(); }
  const ArrayRef<StridesType> strides() const { return impl_->strides(); }
  TensorShapeDynamism shape_dynamism() const { return impl_->shape_dynamism(); }
  Device device() const { return impl_->device(); }
  DeviceType device_type() const { return impl_->device_type(); }
  DeviceIndex device_index() const { return impl_->device_index(); }

  const void* const_data_ptr() const { return impl_->data(); }
  void* mutable_data_ptr() const { return impl_->mutable_data(); }
  template <class T>
  const T* const_data_ptr() const {
    return impl_->data<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return impl_->mutable_data<T>();
  }
  ET_DEPRECATED void* data_ptr() const { return impl_->mutable_data(); }
  template <class T>
  ET_DEPRECATED T* data_ptr() const {
    return impl_->mutable_data<T>();
  }

 private:
  TensorImpl* impl_;
};

ssize_t compute_numel(const TensorImpl::SizesType* sizes, ssize_t dim);
Result<ssize_t> safe_numel(const TensorImpl::SizesType* sizes, ssize_t dim);

}  // namespace etensor
}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::TensorShapeDynamism;
using ::executorch::runtime::etensor::compute_numel;
using ::executorch::runtime::etensor::Device;
using ::executorch::runtime::etensor::DeviceType;
using ::executorch::runtime::etensor::Layout;
using ::executorch::runtime::etensor::MemoryFormat;
using ::executorch::runtime::etensor::safe_numel;
using ::executorch::runtime::etensor::Tensor;
using ::executorch::runtime::etensor::TensorImpl;
}  // namespace torch::executor
