#include <bridge/lean_tensor.h>

#include <cstring>
#include <numeric>
#include <type_traits>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

namespace opsmith {

namespace {

void check_size(const LeanCall& call, const at::TensorBase& tensor, size_t most_dims, int64_t most_elements) {
  TORCH_CHECK_NOT_IMPLEMENTED(LeanInput::describes(tensor), call.operator_name, ": its kernel ", call.kernel,
                              " takes Tensors of at most ", most_dims, " dimensions and ", most_elements,
                              " elements, and one has the shape ", tensor.sizes(),
                              "\n  remedy: split the Tensor, or move it to the CPU: .cpu()");
}

// As TensorIterator casts: what a floating-point dtype does not hold is infinite.
template <class T>
void convert_element(const at::Tensor& scalar, void* element) {
  const at::Scalar given = scalar.item();
  const T value = std::is_floating_point_v<T> ? static_cast<T>(given.to<double>()) : given.to<T>();
  std::memcpy(element, &value, sizeof(T));
}

void convert_element(const at::Tensor& scalar, c10::ScalarType dtype, void* element) {
  switch (dtype) {
    case at::kDouble:
      return convert_element<double>(scalar, element);
    case at::kFloat:
      return convert_element<float>(scalar, element);
    case at::kLong:
      return convert_element<int64_t>(scalar, element);
    case at::kInt:
      return convert_element<int32_t>(scalar, element);
    case at::kShort:
      return convert_element<int16_t>(scalar, element);
    case at::kChar:
      return convert_element<int8_t>(scalar, element);
    case at::kByte:
      return convert_element<uint8_t>(scalar, element);
    case at::kBool:
      return convert_element<bool>(scalar, element);
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "a Python scalar as ", dtype, " is not bridged to lean kernels");
  }
}

// Whether a Python scalar is itself in the operands' dtype. An integer that is not stays what it is: the
// kernel cuts it off where it adds, and divides by all of it, as PyTorch does.
bool keeps_value(const at::Tensor& scalar, c10::ScalarType dtype) {
  if (!at::isIntegralType(dtype, false) || !at::isIntegralType(scalar.scalar_type(), false)) {
    return true;
  }
  const int64_t value = scalar.item().toLong();
  switch (dtype) {
    case at::kByte:
      return value == static_cast<uint8_t>(value);
    case at::kChar:
      return value == static_cast<int8_t>(value);
    case at::kShort:
      return value == static_cast<int16_t>(value);
    case at::kInt:
      return value == static_cast<int32_t>(value);
    default:
      return true;
  }
}

}  // namespace

void LeanInput::describe_dense(const at::TensorBase& tensor) {
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  const auto begin = order_.begin();
  const auto end = begin + sizes.size();
  std::iota(begin, end, uint8_t{0});
  // Dimensions of one element may have any stride: they stay where they are among their neighbours.
  std::stable_sort(begin, end, [&](uint8_t a, uint8_t b) { return strides[a] > strides[b]; });
  int32_t stride = 1;
  for (auto dim = end; dim != begin;) {
    --dim;
    sizes_[*dim] = static_cast<int32_t>(sizes[*dim]);
    strides_[*dim] = stride;
    stride *= std::max(sizes_[*dim], 1);
  }
}

void LeanInput::convert(const LeanCall& call, const at::Tensor& tensor) {
  check_size(call, tensor, kMostDims, kMostElements);
  if (is_scalar(call, tensor)) {
    const bool converts = call.scalars != c10::ScalarType::Undefined &&
                          tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
                          keeps_value(tensor, call.scalars);
    const c10::ScalarType dtype = converts ? call.scalars : tensor.scalar_type();
    if (call.elements == Elements::kOnDevice) {
      held_ = at::scalar_tensor(tensor.item(), at::device(lean_device()).dtype(dtype));
      describe_contiguous(held_.sizes());
      bind(call, held_, held_.const_data_ptr());
      return;
    }
    if (dtype == tensor.scalar_type()) {
      std::memcpy(element_.data(), tensor.const_data_ptr(), tensor.itemsize());
    } else {
      convert_element(tensor, dtype, element_.data());
    }
    bind(dtype, 0, element_.data());
  } else if (call.orders == DimOrders::kAny && tensor.is_non_overlapping_and_dense()) {
    describe_dense(tensor);
    bind(call, tensor, tensor.const_data_ptr());
  } else {
    held_ = contiguous_in_order(tensor);
    if (call.elements == Elements::kOnHost && !call.queued && !tensor.is_cpu()) {
      wait_for_copies();
    }
    describe_contiguous(held_.sizes());
    bind(call, held_, held_.const_data_ptr());
  }
}

LeanOutput::LeanOutput(const LeanCall& call, const at::Tensor& tensor) : out_(tensor) {
  if (C10_UNLIKELY(!tensor.defined())) {  // a gradient that output_mask leaves out: no kernel writes to it
    describe_contiguous({0});
    bind(at::kByte, 1, nullptr);
    return;
  }
  if (C10_LIKELY(is_direct(tensor))) {
    describe_contiguous(tensor.sizes());
    bind(call, tensor, tensor.mutable_data_ptr());
    return;
  }
  check_size(call, tensor, kMostDims, kMostElements);
  if (call.orders == DimOrders::kAny && tensor.is_non_overlapping_and_dense()) {
    describe_dense(tensor);
    bind(call, tensor, tensor.mutable_data_ptr());
  } else {
    held_ = at::empty(tensor.sizes(), tensor.options());
    describe_contiguous(held_.sizes());
    bind(call, held_, held_.mutable_data_ptr());
  }
}

void LeanOutput::finish() {
  if (C10_UNLIKELY(held_.defined())) {
    out_.copy_(held_);
  }
}

}  // namespace opsmith
