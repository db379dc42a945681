// See fill.h.
#include <opsmith/operators/fill.h>

#include <opsmith/device/device_work.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>
#include <opsmith/operators/views.h>

#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/fill.h>

namespace opsmith {
namespace {

// fill_ with the bits of `element`, as a number of the integral dtype U, which is as wide.
template <class U>
void fill_bits(const at::Tensor& out, const at::Tensor& element) {
  constexpr at::ScalarType dtype = c10::CppTypeToScalarType<U>::value;
  out.view(dtype).fill_(*static_cast<const U*>(element.const_data_ptr()));
}

}  // namespace

at::Tensor& zero_(at::Tensor& self) {
  if (!self.is_non_overlapping_and_dense()) {
    return self.fill_(0);
  }
  if (self.numel() > 0) {
    const c10::DeviceIndex device = self.device().index();
    const profile::StreamWork work("Memset", device, profile::Kind::kCopy, self.nbytes());
    check(driver().fill(device, self.mutable_data_ptr(), 0, self.nbytes(), current_stream(device)),
          "fill memory", device);
  }
  return self;
}

at::Tensor& fill_scalar_out(const at::Tensor& self, const at::Scalar& value, at::Tensor& out) {
  TORCH_CHECK(out.dtype() == self.dtype(), "Expected out tensor to have dtype ", self.dtype(), ", but got ",
              out.dtype(), " instead");
  const at::Tensor element = at::detail::scalar_tensor_static(value, self.scalar_type(), at::kCPU);
  at::native::resize_output(out, self.sizes());
  switch (element.element_size()) {
    case 1:
      fill_bits<uint8_t>(out, element);
      break;
    case 2:
      fill_bits<int16_t>(out, element);
      break;
    case 4:
      fill_bits<int32_t>(out, element);
      break;
    case 8:
      fill_bits<int64_t>(out, element);
      break;
    default: {
      const at::Tensor parts = view_as_real(out);
      const auto number = value.toComplexDouble();
      parts.select(-1, 0).fill_(number.real());
      parts.select(-1, 1).fill_(number.imag());
    }
  }
  return out;
}

}  // namespace opsmith
