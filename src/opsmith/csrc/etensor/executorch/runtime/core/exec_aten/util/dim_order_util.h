// Dim orders: the dimensions of a dense Tensor from the outermost in memory to the innermost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>
#include <executorch/runtime/platform/compiler.h>

namespace executorch::runtime {

template <class DimOrderType>
bool is_contiguous_dim_order(const DimOrderType* dim_order, size_t dims) {
  for (size_t i = 0; i < dims; ++i) {
    if (dim_order[i] != static_cast<DimOrderType>(i)) {
      return false;
    }
  }
  return true;
}

// Of images and volumes: 0, 2, 3, 1 and 0, 2, 3, 4, 1.
template <class DimOrderType>
bool is_channels_last_dim_order(const DimOrderType* dim_order, size_t dims) {
  if ((dims != 4 && dims != 5) || dim_order[0] != 0 || dim_order[dims - 1] != 1) {
    return false;
  }
  for (size_t i = 1; i + 1 < dims; ++i) {
    if (dim_order[i] != static_cast<DimOrderType>(i + 1)) {
      return false;
    }
  }
  return true;
}

// The strides of a dense Tensor; a dimension without elements counts as one of one element.
template <class SizesType, class DimOrderType, class StridesType>
void dim_order_to_stride_nocheck(const SizesType* sizes, const DimOrderType* dim_order, size_t dims,
                                 StridesType* strides) {
  StridesType stride = 1;
  for (size_t i = dims; i-- > 0;) {
    const DimOrderType dim = dim_order[i];
    strides[dim] = stride;
    stride *= sizes[dim] == 0 ? 1 : sizes[dim];
  }
}

// The same, where `dim_order` names each dimension once; InvalidArgument where it does not.
template <class SizesType, class DimOrderType, class StridesType>
ET_NODISCARD Error dim_order_to_stride(const SizesType* sizes, const DimOrderType* dim_order, size_t dims,
                                       StridesType* strides) {
  uint32_t named = 0;
  for (size_t i = 0; i < dims && dims <= kTensorDimensionLimit; ++i) {
    named |= static_cast<size_t>(dim_order[i]) < dims ? 1u << dim_order[i] : 0;
  }
  ET_CHECK_OR_RETURN_ERROR(dims <= kTensorDimensionLimit && named == (1u << dims) - 1, InvalidArgument,
                           "a dim order is a permutation of the numbers below %zu", dims);
  dim_order_to_stride_nocheck(sizes, dim_order, dims, strides);
  return Error::Ok;
}

// The dim order of a dense Tensor; dimensions of one stride stay in their order.
template <class DimOrderType, class StridesType>
ET_NODISCARD Error stride_to_dim_order(const StridesType* strides, size_t dims, DimOrderType* dim_order) {
  ET_CHECK_OR_RETURN_ERROR(dim_order != nullptr, MemoryAllocationFailed, "no memory for a dim order");
  ET_CHECK_OR_RETURN_ERROR(dims <= kTensorDimensionLimit, NotSupported,
                           "%zu dimensions, and %zu are the most", dims, kTensorDimensionLimit);
  std::iota(dim_order, dim_order + dims, DimOrderType{0});
  std::stable_sort(dim_order, dim_order + dims,
                   [strides](DimOrderType a, DimOrderType b) { return strides[a] > strides[b]; });
  return Error::Ok;
}

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::dim_order_to_stride;
using ::executorch::runtime::dim_order_to_stride_nocheck;
using ::executorch::runtime::is_channels_last_dim_order;
using ::executorch::runtime::is_contiguous_dim_order;
using ::executorch::runtime::stride_to_dim_order;
}  // namespace torch::executor
