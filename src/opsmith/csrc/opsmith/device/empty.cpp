// Uninitialised tensors on the device. See empty.h.
#include <opsmith/device/empty.h>

#include <opsmith/device/device.h>
#include <opsmith/device/device_scope.h>
#include <opsmith/device/driver.h>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/Allocator.h>

namespace opsmith {
namespace {

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

c10::Allocator* allocator() {
  return c10::GetAllocator(c10::DeviceType::PrivateUse1);
}

// The device's index, after all that the two operators must refuse was refused.
c10::DeviceIndex checked_options(const char* operator_name, std::optional<at::Layout> layout,
                                 std::optional<at::Device> device, std::optional<bool> pin_memory) {
  reject_options(operator_name, layout, pin_memory);
  if (!device.has_value()) {
    return current_device();
  }
  TORCH_CHECK(device->is_privateuseone(), operator_name, ": expected a device of type ", device_type_name(),
              ", but got ", *device, ".");
  return checked_device(device->index());
}

at::Tensor filled_if_deterministic(at::Tensor tensor) {
  at::Context& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

}  // namespace

void reject_options(const char* operator_name, std::optional<at::Layout> layout,
                    std::optional<bool> pin_memory) {
  if (C10_UNLIKELY(layout.value_or(at::kStrided) != at::kStrided)) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, operator_name, ": ", device_type_name(), " has no tensors of layout ",
                                *layout, ", only strided (dense) ones. Make the ", *layout,
                                " tensor with device=\"cpu\", or leave `layout` out.");
  }
  TORCH_CHECK(!pin_memory.value_or(false), operator_name,
              ": only CPU tensors can be pinned, and this one is asked for on ", device_type_name(),
              ". Leave `pin_memory` out, or make the tensor with device=\"cpu\".");
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  const DeviceScope scope(checked_options("aten::empty.memory_format", layout, device, pin_memory));
  return filled_if_deterministic(at::detail::empty_generic(
      size, allocator(), kKeys, dtype.value_or(at::get_default_dtype_as_scalartype()), memory_format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  const DeviceScope scope(checked_options("aten::empty_strided", layout, device, pin_memory));
  return filled_if_deterministic(at::detail::empty_strided_generic(
      size, stride, allocator(), kKeys, dtype.value_or(at::get_default_dtype_as_scalartype())));
}

at::Tensor _efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout> layout, std::optional<at::Device> device,
                                std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checked_options("aten::_efficientzerotensor", layout, device, pin_memory);
  at::native::ZeroTensorAllocator no_memory(c10::Device(c10::kPrivateUse1, index));
  return at::detail::empty_generic(size, &no_memory,
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   dtype.value_or(at::get_default_dtype_as_scalartype()), std::nullopt);
}

at::Tensor empty_fast(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  const DeviceScope scope(device.has_index() ? device.index() : current_device());
  return at::detail::empty_generic(sizes, allocator(), kKeys, dtype, std::nullopt);
}

at::Tensor empty_strided_fast(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                              c10::Device device) {
  const DeviceScope scope(device.has_index() ? device.index() : current_device());
  return at::detail::empty_strided_generic(sizes, strides, allocator(), kKeys, dtype);
}

at::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes) {
  const DeviceScope scope(device);
  return allocator()->allocate(bytes);
}

}  // namespace opsmith
