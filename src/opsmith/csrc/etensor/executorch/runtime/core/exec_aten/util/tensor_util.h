// Checks and conversions of Tensors. A check that fails logs why: those that are functions return false,
// ET_KERNEL_CHECK fails the kernel's context, and ET_CHECK_… end the call.
#pragma once

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/platform/assert.h>
#include <executorch/runtime/platform/compiler.h>

// ---- Checks in a kernel

// Fails the context with the error, and returns `result`, where the condition does not hold.
#define ET_KERNEL_CHECK(context, condition, error, result) \
  ET_KERNEL_CHECK_MSG(context, condition, error, result, "")
#define ET_KERNEL_CHECK_MSG(context, condition, error, result, format, ...)   \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ET_LOG(Error, "Check failed (%s): " format, #condition, ##__VA_ARGS__); \
      (context).fail(::executorch::runtime::Error::error);                    \
      return result;                                                          \
    }                                                                         \
  } while (false)

#define ET_LOG_AND_RETURN_IF_FALSE(condition) ET_CHECK_OR_RETURN_FALSE(condition, "")
#define ET_LOG_MSG_AND_RETURN_IF_FALSE(condition, format, ...) \
  ET_CHECK_OR_RETURN_FALSE(condition, format, ##__VA_ARGS__)

#define ET_NORMALIZE_IX(index, bound) ((index) < 0 ? (index) + (bound) : (index))

#define ET_CHECK_VALID_IX(index, bound)                                                           \
  ET_CHECK_MSG((index) >= -static_cast<int64_t>(bound) && (index) < static_cast<int64_t>(bound),  \
               "index %" PRId64 " must be within range [-%zd, %zd)", static_cast<int64_t>(index), \
               static_cast<ssize_t>(bound), static_cast<ssize_t>(bound))
#define ET_CHECK_VALID_DIM(dim, bound)                                                        \
  ET_CHECK_MSG((dim) >= -static_cast<int64_t>(bound) && (dim) < static_cast<int64_t>(bound),  \
               "dim %" PRId64 " must be within range [-%zd, %zd)", static_cast<int64_t>(dim), \
               static_cast<ssize_t>(bound), static_cast<ssize_t>(bound))
#define ET_CHECK_NON_ZERO_DIM_SIZE(dim, tensor) \
  ET_CHECK_MSG((tensor).size(ET_NORMALIZE_IX(dim, (tensor).dim())) != 0, "the dimension has no elements")
#define ET_CHECK_SAME_SHAPE2(a, b) ET_CHECK(::executorch::runtime::tensors_have_same_shape(a, b))
#define ET_CHECK_SAME_SHAPE3(a, b, c) ET_CHECK(::executorch::runtime::tensors_have_same_shape(a, b, c))
#define ET_CHECK_SAME_DTYPE2(a, b) ET_CHECK(::executorch::runtime::tensors_have_same_dtype(a, b))
#define ET_CHECK_SAME_DTYPE3(a, b, c) ET_CHECK(::executorch::runtime::tensors_have_same_dtype(a, b, c))
#define ET_CHECK_SAME_SHAPE_AND_DTYPE2(a, b) \
  ET_CHECK(::executorch::runtime::tensors_have_same_shape_and_dtype(a, b))
#define ET_CHECK_SAME_SHAPE_AND_DTYPE3(a, b, c) \
  ET_CHECK(::executorch::runtime::tensors_have_same_shape_and_dtype(a, b, c))
#define ET_CHECK_SAME_STRIDES2(a, b) ET_CHECK(::executorch::runtime::tensors_have_same_strides(a, b))
#define ET_CHECK_SAME_STRIDES3(a, b, c) ET_CHECK(::executorch::runtime::tensors_have_same_strides(a, b, c))
#define ET_CHECK_CONTIGUOUS(tensor) ET_CHECK(::executorch::runtime::tensor_is_contiguous(tensor))
#define ET_CHECK_DEFAULT_OR_CHANNELSLAST_DIMORDER(tensor)                                   \
  ET_CHECK_MSG(::executorch::runtime::tensor_is_default_or_channels_last_dim_order(tensor), \
               "Tensor must have default or channels last dim order")
#define ET_EXTRACT_SCALAR_TENSOR(tensor, value)                              \
  ET_CHECK_MSG(::executorch::runtime::extract_scalar_tensor(tensor, &value), \
               #tensor " could not be extracted: wrong type or out of range")

namespace executorch::runtime {

using etensor::Tensor;
using etensor::TensorImpl;

// ---- Dtypes

inline bool tensor_is_type(Tensor t, ScalarType dtype) {
  ET_CHECK_OR_RETURN_FALSE(t.scalar_type() == dtype, "%s is expected, and the Tensor is %s", toString(dtype),
                           toString(t.scalar_type()));
  return true;
}
inline bool tensor_is_type(Tensor t, ScalarType dtype, ScalarType dtype2) {
  ET_CHECK_OR_RETURN_FALSE(t.scalar_type() == dtype || t.scalar_type() == dtype2,
                           "%s or %s is expected, and the Tensor is %s", toString(dtype), toString(dtype2),
                           toString(t.scalar_type()));
  return true;
}
inline bool tensor_is_type(Tensor t, ScalarType dtype, ScalarType dtype2, ScalarType dtype3) {
  ET_CHECK_OR_RETURN_FALSE(t.scalar_type() == dtype || t.scalar_type() == dtype2 || t.scalar_type() == dtype3,
                           "%s, %s or %s is expected, and the Tensor is %s", toString(dtype),
                           toString(dtype2), toString(dtype3), toString(t.scalar_type()));
  return true;
}

namespace internal {

inline bool is_kind(bool is_it, const char* kind, Tensor t) {
  if (!is_it) {
    ET_LOG(Error, "a %s dtype is expected, and the Tensor is %s", kind, toString(t.scalar_type()));
  }
  return is_it;
}

}  // namespace internal

inline bool tensor_is_bool_type(Tensor t) {
  return tensor_is_type(t, ScalarType::Bool);
}
inline bool tensor_is_integral_type(Tensor t, bool includeBool = false) {
  return internal::is_kind(isIntegralType(t.scalar_type(), includeBool), "integral", t);
}
inline bool tensor_is_floating_type(Tensor t) {
  return internal::is_kind(isFloatingType(t.scalar_type()), "floating-point", t);
}
inline bool tensor_is_complex_type(Tensor t) {
  return internal::is_kind(isComplexType(t.scalar_type()), "complex", t);
}
inline bool tensor_is_bits_type(Tensor t) {
  return internal::is_kind(isBitsType(t.scalar_type()), "bits", t);
}
inline bool tensor_is_real_type(Tensor t) {
  return internal::is_kind(isRealType(t.scalar_type()), "real", t);
}
inline bool tensor_is_realh_type(Tensor t) {
  return internal::is_kind(isRealHType(t.scalar_type()), "real", t);
}
inline bool tensor_is_realhb_type(Tensor t) {
  return internal::is_kind(isRealHBType(t.scalar_type()), "real or Bool", t);
}
inline bool tensor_is_realhbf16_type(Tensor t) {
  return internal::is_kind(isRealHBF16Type(t.scalar_type()), "real", t);
}
inline bool tensor_is_realhbbf16_type(Tensor t) {
  return internal::is_kind(isRealHBBF16Type(t.scalar_type()), "real or Bool", t);
}
inline bool tensor_can_cast_to(Tensor t, ScalarType dtype) {
  ET_CHECK_OR_RETURN_FALSE(canCast(t.scalar_type(), dtype), "%s cannot be cast to %s",
                           toString(t.scalar_type()), toString(dtype));
  return true;
}
inline bool tensors_have_same_dtype(Tensor a, Tensor b) {
  ET_CHECK_OR_RETURN_FALSE(a.scalar_type() == b.scalar_type(), "the dtypes are %s and %s",
                           toString(a.scalar_type()), toString(b.scalar_type()));
  return true;
}
inline bool tensors_have_same_dtype(Tensor a, Tensor b, Tensor c) {
  return tensors_have_same_dtype(a, b) && tensors_have_same_dtype(b, c);
}

// ---- Dimensions and shapes

inline bool dim_is_valid(int64_t dim, int64_t bound) {
  ET_CHECK_OR_RETURN_FALSE(dim >= -bound && dim < bound, "dimension %" PRId64 " of %" PRId64 " is none", dim,
                           bound);
  return true;
}
// A Tensor without dimensions counts as one of one dimension of one element.
inline ssize_t nonzero_dim(const Tensor& t) {
  return t.dim() == 0 ? 1 : t.dim();
}
inline ssize_t nonempty_size(const Tensor& t, ssize_t dim) {
  return t.dim() == 0 ? 1 : t.size(dim);
}
inline bool tensor_is_rank(Tensor t, size_t rank) {
  ET_CHECK_OR_RETURN_FALSE(static_cast<size_t>(t.dim()) == rank,
                           "%zu dimensions are expected, and there are %zd", rank, t.dim());
  return true;
}
inline bool tensor_has_rank_greater_or_equal_to(Tensor t, size_t rank) {
  ET_CHECK_OR_RETURN_FALSE(static_cast<size_t>(t.dim()) >= rank,
                           "%zu dimensions or more are expected, and there are %zd", rank, t.dim());
  return true;
}
inline bool tensor_has_rank_smaller_or_equal_to(Tensor t, size_t rank) {
  ET_CHECK_OR_RETURN_FALSE(static_cast<size_t>(t.dim()) <= rank,
                           "%zu dimensions at most are expected, and there are %zd", rank, t.dim());
  return true;
}
inline bool tensor_has_dim(Tensor t, int64_t dim) {
  return dim_is_valid(dim, nonzero_dim(t));
}
inline bool tensor_has_non_empty_dim(Tensor t, int64_t dim) {
  return tensor_has_dim(t, dim) && [&] {
    ET_LOG_AND_RETURN_IF_FALSE(nonempty_size(t, ET_NORMALIZE_IX(dim, t.dim())) != 0);
    return true;
  }();
}
// Of a Tensor with dimensions, and one of these.
inline bool tensor_dim_has_index(Tensor t, int64_t dim, int64_t index) {
  dim = ET_NORMALIZE_IX(dim, t.dim());
  ET_CHECK(dim >= 0 && dim < t.dim());
  const int64_t size = t.size(dim);
  ET_CHECK_OR_RETURN_FALSE(index >= -size && index < size,
                           "index %" PRId64 " in dimension %" PRId64 ", which has %" PRId64 " elements",
                           index, dim, size);
  return true;
}
inline bool tensors_have_same_rank(Tensor a, Tensor b) {
  ET_CHECK_OR_RETURN_FALSE(a.dim() == b.dim(), "there are %zd and %zd dimensions", a.dim(), b.dim());
  return true;
}
inline bool tensors_have_same_size_at_dims(Tensor a, size_t dim_a, Tensor b, size_t dim_b) {
  ET_CHECK_OR_RETURN_FALSE(dim_a < static_cast<size_t>(a.dim()) && dim_b < static_cast<size_t>(b.dim()),
                           "dimensions %zu and %zu of Tensors that have %zd and %zd", dim_a, dim_b, a.dim(),
                           b.dim());
  const ssize_t size_a = a.size(static_cast<ssize_t>(dim_a));
  const ssize_t size_b = b.size(static_cast<ssize_t>(dim_b));
  ET_CHECK_OR_RETURN_FALSE(size_a == size_b, "dimension %zu has %zd elements, and %zu of the other %zd",
                           dim_a, size_a, dim_b, size_b);
  return true;
}
inline bool tensor_has_expected_size(Tensor t, ArrayRef<etensor::TensorImpl::SizesType> sizes) {
  ET_CHECK_OR_RETURN_FALSE(t.sizes().size() == sizes.size(), "%zu dimensions are expected, and there are %zd",
                           sizes.size(), t.dim());
  for (size_t i = 0; i < sizes.size(); ++i) {
    ET_CHECK_OR_RETURN_FALSE(t.sizes()[i] == sizes[i], "dimension %zu has %d elements, and %d are expected",
                             i, static_cast<int>(t.sizes()[i]), static_cast<int>(sizes[i]));
  }
  return true;
}
// Tensors of one element each have it, whatever their dimensions.
inline bool tensors_have_same_shape(Tensor a, Tensor b) {
  return (a.numel() == 1 && b.numel() == 1) || tensor_has_expected_size(b, a.sizes());
}
inline bool tensors_have_same_shape(Tensor a, Tensor b, Tensor c) {
  return (a.numel() == 1 && b.numel() == 1 && c.numel() == 1) ||
         (tensor_has_expected_size(b, a.sizes()) && tensor_has_expected_size(c, b.sizes()));
}
inline bool tensors_have_same_shape_and_dtype(Tensor a, Tensor b) {
  return tensors_have_same_shape(a, b) && tensors_have_same_dtype(a, b);
}
inline bool tensors_have_same_shape_and_dtype(Tensor a, Tensor b, Tensor c) {
  return tensors_have_same_shape(a, b, c) && tensors_have_same_dtype(a, b, c);
}
inline bool tensor_is_scalar(Tensor t) {
  return t.dim() == 0 && t.numel() == 1;
}

// ---- Strides and dim orders

inline bool tensors_have_same_strides(Tensor a, Tensor b) {
  ET_LOG_AND_RETURN_IF_FALSE(a.strides() == b.strides());
  return true;
}
inline bool tensors_have_same_strides(Tensor a, Tensor b, Tensor c) {
  return tensors_have_same_strides(a, b) && tensors_have_same_strides(b, c);
}
inline bool tensor_is_contiguous(Tensor t) {
  const auto sizes = t.sizes();
  const auto strides = t.strides();
  int64_t dense = 1;
  for (size_t i = strides.size(); i-- > 0;) {
    ET_CHECK_OR_RETURN_FALSE(strides[i] == dense, "dimension %zu has the stride %d, not %" PRId64, i,
                             static_cast<int>(strides[i]), dense);
    dense = static_cast<int64_t>(strides[i]) * sizes[i];
  }
  return true;
}

// Copies the dim order to `order`, which has `size` places.
ET_NODISCARD Error get_dim_order(const Tensor& t, TensorImpl::DimOrderType* order, size_t size);
bool tensor_has_valid_dim_order(Tensor t);
bool tensor_is_default_dim_order(Tensor t);
bool tensor_is_channels_last_dim_order(Tensor t);
bool tensor_is_default_or_channels_last_dim_order(Tensor t);
bool tensors_have_same_dim_order(const ArrayRef<Tensor> tensors);
inline bool tensors_have_same_dim_order(const Tensor& a, const Tensor& b) {
  const Tensor tensors[] = {a, b};
  return tensors_have_same_dim_order(tensors);
}
inline bool tensors_have_same_dim_order(const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor tensors[] = {a, b, c};
  return tensors_have_same_dim_order(tensors);
}
inline bool tensors_have_same_dim_order(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  const Tensor tensors[] = {a, b, c, d};
  return tensors_have_same_dim_order(tensors);
}

// ---- Where an element of a contiguous Tensor lies

namespace internal {

inline size_t product_of_sizes(const Tensor& t, int64_t begin, int64_t end) {
  size_t product = 1;
  for (int64_t dim = begin; dim < end; ++dim) {
    ET_CHECK(!__builtin_mul_overflow(product, static_cast<size_t>(t.size(dim)), &product));
  }
  return product;
}

}  // namespace internal

// The product of the sizes before dimension `dim`, and after it.
inline size_t getLeadingDims(const Tensor& t, int64_t dim) {
  ET_CHECK_MSG(dim >= 0 && dim <= t.dim(), "dimension %" PRId64 " of %zd", dim, t.dim());
  return internal::product_of_sizes(t, 0, dim);
}
inline size_t getTrailingDims(const Tensor& t, int64_t dim) {
  ET_CHECK_MSG(dim >= -1 && dim < t.dim(), "dimension %" PRId64 " of %zd", dim, t.dim());
  return internal::product_of_sizes(t, dim + 1, t.dim());
}
// getTrailingDims of all dimensions.
inline void memoizeTrailingDims(const Tensor& t, size_t trailing[kTensorDimensionLimit]) {
  size_t product = 1;
  for (ssize_t dim = t.dim(); dim-- > 0;) {
    trailing[dim] = product;
    product *= static_cast<size_t>(t.size(dim));
  }
}
inline size_t coordinateToIndexWithTrailingDimsMemo(const Tensor& t, const size_t* coordinate,
                                                    const size_t trailing[kTensorDimensionLimit]) {
  size_t index = 0;
  for (ssize_t dim = 0; dim < t.dim(); ++dim) {
    index += coordinate[dim] * trailing[dim];
  }
  return index;
}
inline size_t coordinateToIndex(const Tensor& t, const size_t* coordinate) {
  size_t trailing[kTensorDimensionLimit];
  memoizeTrailingDims(t, trailing);
  return coordinateToIndexWithTrailingDimsMemo(t, coordinate, trailing);
}
inline void indexToCoordinate(const Tensor& t, size_t index, size_t* coordinate) {
  ET_CHECK(index < static_cast<size_t>(t.numel()));
  for (ssize_t dim = t.dim(); dim-- > 0;) {
    const size_t size = static_cast<size_t>(t.size(dim));
    coordinate[dim] = index % size;
    index /= size;
  }
}
inline size_t calculate_linear_index(const TensorImpl::SizesType* coordinate,
                                     const TensorImpl::StridesType* strides, size_t dims) {
  size_t index = 0;
  for (size_t i = 0; i < dims; ++i) {
    index += static_cast<size_t>(coordinate[i]) * static_cast<size_t>(strides[i]);
  }
  return index;
}

// ---- The value of a Tensor of one element

namespace internal {

// An integer takes integers, a bool Bool, a floating-point number whatever is real; in the range of T.
template <class T, class Element>
bool extract_element(Element element, T* value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<Element, bool>) {
    if constexpr (!std::is_same_v<T, Element>) {
      return false;
    }
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (!std::is_integral_v<Element>) {
      return false;
    } else if (static_cast<Element>(static_cast<T>(element)) != element ||
               (static_cast<T>(element) < 0) != (element < 0)) {
      return false;
    }
  } else if (const double number = static_cast<double>(element);
             std::isfinite(number) && (number < static_cast<double>(std::numeric_limits<T>::lowest()) ||
                                       number > static_cast<double>(std::numeric_limits<T>::max()))) {
    return false;
  }
  *value = static_cast<T>(element);
  return true;
}

}  // namespace internal

// Puts the element into `value`; false, with nothing logged, where there is not one, or T does not hold it.
template <class T>
bool extract_scalar_tensor(Tensor t, T* value) {
  if (t.numel() != 1) {
    return false;
  }
  switch (t.scalar_type()) {
#define OPSMITH_EXTRACT(ctype, name) \
  case ScalarType::name:             \
    return internal::extract_element(*t.const_data_ptr<ctype>(), value);
    ET_FORALL_REALHBBF16_TYPES(OPSMITH_EXTRACT)
#undef OPSMITH_EXTRACT
    default:
      return false;
  }
}

// ---- Resizing

namespace internal {

ET_NODISCARD Error resize_tensor_impl(TensorImpl* impl, ArrayRef<TensorImpl::SizesType> new_sizes);
ET_NODISCARD Error copy_tensor_data(const Tensor& to, const Tensor& from);

}  // namespace internal

// Gives the Tensor other sizes, within its memory. On a PyTorch device it has the result's shape already, and
// this says whether the kernel means the same.
ET_NODISCARD inline Error resize_tensor(Tensor t, ArrayRef<TensorImpl::SizesType> new_sizes) {
  return internal::resize_tensor_impl(t.unsafeGetTensorImpl(), new_sizes);
}
template <class T, std::enable_if_t<!std::is_same_v<T, TensorImpl::SizesType>, int> = 0>
ET_NODISCARD Error resize_tensor(Tensor t, ArrayRef<T> new_sizes) {
  std::array<TensorImpl::SizesType, kTensorDimensionLimit> sizes{};
  ET_CHECK_OR_RETURN_ERROR(new_sizes.size() <= sizes.size(), InvalidArgument,
                           "%zu dimensions, and %zu are the most", new_sizes.size(), sizes.size());
  std::transform(new_sizes.begin(), new_sizes.end(), sizes.begin(),
                 [](T size) { return static_cast<TensorImpl::SizesType>(size); });
  return resize_tensor(t, ArrayRef<TensorImpl::SizesType>(sizes.data(), new_sizes.size()));
}
ET_DEPRECATED inline void resize(Tensor t, ArrayRef<TensorImpl::SizesType> new_sizes) {
  ET_CHECK_MSG(resize_tensor(t, new_sizes) == Error::Ok, "the Tensor could not be resized");
}

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::calculate_linear_index;
using ::executorch::runtime::coordinateToIndex;
using ::executorch::runtime::coordinateToIndexWithTrailingDimsMemo;
using ::executorch::runtime::dim_is_valid;
using ::executorch::runtime::extract_scalar_tensor;
using ::executorch::runtime::get_dim_order;
using ::executorch::runtime::getLeadingDims;
using ::executorch::runtime::getTrailingDims;
using ::executorch::runtime::indexToCoordinate;
using ::executorch::runtime::memoizeTrailingDims;
using ::executorch::runtime::nonempty_size;
using ::executorch::runtime::nonzero_dim;
using ::executorch::runtime::resize;
using ::executorch::runtime::resize_tensor;
using ::executorch::runtime::tensor_can_cast_to;
using ::executorch::runtime::tensor_dim_has_index;
using ::executorch::runtime::tensor_has_dim;
using ::executorch::runtime::tensor_has_expected_size;
using ::executorch::runtime::tensor_has_non_empty_dim;
using ::executorch::runtime::tensor_has_rank_greater_or_equal_to;
using ::executorch::runtime::tensor_has_rank_smaller_or_equal_to;
using ::executorch::runtime::tensor_has_valid_dim_order;
using ::executorch::runtime::tensor_is_bits_type;
using ::executorch::runtime::tensor_is_bool_type;
using ::executorch::runtime::tensor_is_channels_last_dim_order;
using ::executorch::runtime::tensor_is_complex_type;
using ::executorch::runtime::tensor_is_contiguous;
using ::executorch::runtime::tensor_is_default_dim_order;
using ::executorch::runtime::tensor_is_default_or_channels_last_dim_order;
using ::executorch::runtime::tensor_is_floating_type;
using ::executorch::runtime::tensor_is_integral_type;
using ::executorch::runtime::tensor_is_rank;
using ::executorch::runtime::tensor_is_real_type;
using ::executorch::runtime::tensor_is_realh_type;
using ::executorch::runtime::tensor_is_realhb_type;
using ::executorch::runtime::tensor_is_realhbbf16_type;
using ::executorch::runtime::tensor_is_realhbf16_type;
using ::executorch::runtime::tensor_is_scalar;
using ::executorch::runtime::tensor_is_type;
using ::executorch::runtime::tensors_have_same_dim_order;
using ::executorch::runtime::tensors_have_same_dtype;
using ::executorch::runtime::tensors_have_same_rank;
using ::executorch::runtime::tensors_have_same_shape;
using ::executorch::runtime::tensors_have_same_shape_and_dtype;
using ::executorch::runtime::tensors_have_same_size_at_dims;
using ::executorch::runtime::tensors_have_same_strides;

namespace internal {
using ::executorch::runtime::internal::copy_tensor_data;
using ::executorch::runtime::internal::resize_tensor_impl;
}  // namespace internal
}  // namespace torch::executor
