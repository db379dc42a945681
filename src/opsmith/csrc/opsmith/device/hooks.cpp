// The hooks of PyTorch's device-independent code for an accelerator: availability, generators, pinned memory,
// the device of an address, resizing a storage. Registered when the library is loaded; they answer "no
// device" until a driver is.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/generator.h>
#include <opsmith/device/pinned.h>
#include <opsmith/device/storage.h>

namespace opsmith {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return device_count() > 0; }

  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return detail::loaded_driver != nullptr && device >= 0 && device < device_count();
  }

  void init() const override { driver(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }

  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }

  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchange_device(device);
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }

  c10::Device getDeviceFromPtr(void* data) const override {
    const std::optional<c10::DeviceIndex> device = device_of(data);
    TORCH_CHECK(device.has_value(), "the address ", data, " does not lie in a live allocation of the ",
                device_type_name(), " device");
    return c10::Device(c10::kPrivateUse1, *device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // never destroyed
  return true;
}();

}  // namespace

}  // namespace opsmith
