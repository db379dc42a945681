// In-place kernels that write one value to every element. They work on bytes of the element's width, so every
// dtype is served by five versions.
#include <opsmith/on_host.h>
#include <opsmith/pointwise.h>

#include <cstring>

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

namespace opsmith::example_kernels {
namespace {

// An element as so many bytes: complex double is the widest.
struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// Calls f.operator()<U>() with the unsigned type that is as wide as the elements.
template <class F>
void with_width(const at::TensorBase& tensor, const F& f) {
  switch (tensor.element_size()) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    case 16:
      return f.template operator()<Bytes16>();
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "Elements of ", tensor.element_size(), " bytes (",
                                  tensor.scalar_type(), ") are not supported on ", tensor.device(),
                                  ". Convert the tensor first");
  }
}

// `value` as one element of the tensor's dtype. Overflow raises; in halves that is for Tensors with
// dimensions only, as on the CPU.
template <class U>
U element_of(const at::TensorBase& tensor, const at::Scalar& value) {
  if (tensor.scalar_type() == at::kHalf && tensor.dim() != 0) {
    static_cast<void>(value.to<at::Half>());
  } else if (tensor.scalar_type() == at::kBFloat16 && tensor.dim() != 0) {
    static_cast<void>(value.to<at::BFloat16>());
  }
  const at::Tensor element = at::detail::scalar_tensor_static(value, tensor.scalar_type(), at::kCPU);
  U bytes;
  std::memcpy(&bytes, element.const_data_ptr(), sizeof(U));
  return bytes;
}

}  // namespace

at::Tensor& fill_scalar_(at::Tensor& self, const at::Scalar& value) {
  // Elements that share memory get the same value: an expanded tensor is filled too, as on the CPU.
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .build();
  with_width(self, [&]<class U>() {
    pointwise<U()>(iter, [element = element_of<U>(self, value)] { return element; });
  });
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  if (self.is_non_overlapping_and_dense()) {
    if (self.numel() != 0) {
      on_host("zero_",
              [to = host_pointer(self.data_ptr()), bytes = self.nbytes()] { std::memset(to, 0, bytes); });
    }
    return self;
  }
  return fill_scalar_(self, 0);
}

}  // namespace opsmith::example_kernels
