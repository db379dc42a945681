// An at::Tensor of the device, or a CPU scalar beside it, as the lean Tensor that kernels of the `executorch`
// ABI take. Sizes, strides and dim order lie on the stack; the elements are where they were, seen through the
// driver's host window.
//
// Note [Dim orders]
// ~~~~~~~~~~~~~~~~~
// A lean Tensor is dense: its strides follow from its sizes and the order of its dimensions in memory. What
// is dense in PyTorch, transposed or channels-last, is passed by its dim order to a kernel that takes any;
// for one that takes contiguous Tensors only, and where a Tensor has gaps or repeats elements, it is copied.
#pragma once

#include <bridge/memory.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <ATen/core/Tensor.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_dimension_limit.h>

namespace opsmith {

namespace lean = ::executorch::aten;

// Which dense Tensors a kernel takes; the others are copied for it.
enum class DimOrders { kContiguous, kAny };

// Where a kernel finds the elements: on the host, or at the device's own addresses.
enum class Elements { kOnHost, kOnDevice };

// The properties of a call that each of its Tensors needs.
struct LeanCall {
  const char* operator_name;
  const char* kernel;  // its C++ name and library, for messages
  DimOrders orders;
  // The dtype of Python scalars among the operands; Undefined where they are passed as they are.
  c10::ScalarType scalars = c10::ScalarType::Undefined;
  Elements elements = Elements::kOnHost;
  // Whether the kernel runs later, on the current stream: what is on the CPU is kept for it.
  bool queued = false;
};

// A Tensor that the kernel reads. Throws NotImplementedError for one that is too large for lean Tensors.
class LeanInput {
 public:
  LeanInput(const LeanCall& call, const at::Tensor& tensor) {
    if (C10_LIKELY(is_direct(tensor) && !is_scalar(call, tensor))) {
      describe_contiguous(tensor.sizes());
      bind(call, tensor, tensor.const_data_ptr());
    } else {
      convert(call, tensor);
    }
  }
  LeanInput(const LeanInput&) = delete;
  LeanInput& operator=(const LeanInput&) = delete;

  const lean::Tensor& get() const { return *tensor_; }

  // The copy that was made for the kernel, if any.
  at::Tensor take_copy() { return std::move(held_); }

  // Whether a lean tensor can have its dimensions and sizes, and it has memory: zeros that autograd makes
  // have none, and a few operators (mul.Scalar, dot) are called with them as they are.
  static bool describes(const at::TensorBase& tensor) {
    return tensor.dim() <= static_cast<int64_t>(kMostDims) && tensor.numel() <= kMostElements &&
           C10_LIKELY(!tensor._is_zerotensor());
  }

 protected:
  LeanInput() = default;

  static constexpr size_t kMostDims = ::executorch::runtime::kTensorDimensionLimit;
  static constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();

  // Whether the kernel can be given the very elements, whatever dim orders it takes.
  static bool is_direct(const at::TensorBase& tensor) { return tensor.is_contiguous() && describes(tensor); }

  void describe_contiguous(at::IntArrayRef sizes) {
    int32_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      sizes_[dim] = static_cast<int32_t>(sizes[dim]);
      strides_[dim] = stride;
      order_[dim] = static_cast<uint8_t>(dim);
      stride *= std::max(sizes_[dim], 1);
    }
  }

  void bind(const LeanCall& call, const at::TensorBase& tensor, const void* elements) {
    void* const found =
        call.elements == Elements::kOnHost ? host_pointer(elements) : const_cast<void*>(elements);
    bind(tensor.scalar_type(), tensor.dim(), found);
  }

  void bind(c10::ScalarType dtype, int64_t dim, void* elements) {
    impl_.emplace(static_cast<lean::ScalarType>(dtype), dim, sizes_.data(), elements, order_.data(),
                  strides_.data());
    tensor_.emplace(&*impl_);
  }

  // Whether it lies beside the operands and has to be converted, kept, or taken to the device.
  static bool is_scalar(const LeanCall& call, const at::Tensor& tensor) {
    return (call.scalars != c10::ScalarType::Undefined &&
            tensor.unsafeGetTensorImpl()->is_wrapped_number()) ||
           (tensor.is_cpu() && (call.elements == Elements::kOnDevice || call.queued));
  }

  // Of a Tensor that is dense and not contiguous.
  void describe_dense(const at::TensorBase& tensor);
  // The constructor's slow path.
  void convert(const LeanCall& call, const at::Tensor& tensor);

  std::array<int32_t, kMostDims> sizes_;
  std::array<int32_t, kMostDims> strides_;
  std::array<uint8_t, kMostDims> order_;
  std::optional<lean::TensorImpl> impl_;
  std::optional<lean::Tensor> tensor_;
  at::Tensor held_;                           // a copy, where one was made
  alignas(16) std::array<char, 16> element_;  // of a Python scalar in another dtype
};

// A Tensor that the kernel writes. finish() copies what was written to a stand-in to where it belongs.
class LeanOutput : public LeanInput {
 public:
  LeanOutput(const LeanCall& call, const at::Tensor& tensor);

  lean::Tensor& get() { return *tensor_; }
  void finish();
  const at::Tensor& out() const { return out_; }

 private:
  const at::Tensor& out_;
};

}  // namespace opsmith
