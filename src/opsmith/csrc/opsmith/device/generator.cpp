// The device's generators: each is a CPU generator under the device's name, because random operators that
// fall back are run by the CPU's kernels, which accept no other kind. So
// torch.Generator(device).manual_seed(3) gives the numbers of a CPU generator with seed 3, and a state saved
// from either fits the other.
#include <opsmith/device/generator.h>

#include <memory>
#include <mutex>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>

namespace opsmith {

namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(c10::DeviceIndex device, at::Generator cpu)
      : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  // PyTorch's callers hold the device generator's mutex, the CPU's kernels only the inner one's: so take that
  // too.
  void set_current_seed(uint64_t seed) override {
    const std::lock_guard lock(cpu_.mutex());
    cpu_.set_current_seed(seed);
  }

  uint64_t current_seed() const override { return cpu_.current_seed(); }

  uint64_t seed() override {
    const std::lock_guard lock(cpu_.mutex());
    return cpu_.seed();
  }

  void set_state(const c10::TensorImpl& state) override {
    const std::lock_guard lock(cpu_.mutex());
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::lock_guard lock(cpu_.unsafeGetGeneratorImpl()->mutex_);
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

  void set_offset(uint64_t) override { throw_no_offset(); }
  uint64_t get_offset() const override { throw_no_offset(); }

  const at::Generator& cpu() const { return cpu_; }

 private:
  DeviceGenerator* clone_impl() const override {
    const std::lock_guard lock(cpu_.unsafeGetGeneratorImpl()->mutex_);
    return new DeviceGenerator(device_.index(), cpu_.clone());
  }

  [[noreturn]] void throw_no_offset() const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "the generator of ", device_,
        " has no offset, because it is no Philox generator; use get_state() and set_state()");
  }

  at::Generator cpu_;
};

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(checked_device(device), at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  device = checked_device(device);
  // Never destroyed, and made when first asked for, since their number is known only once a driver is loaded.
  static const auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      made->push_back(new_generator(index));
    }
    return made;
  }();
  return (*generators)[device];
}

at::Generator cpu_generator(const at::Generator& device_generator) {
  TORCH_CHECK(device_generator.defined() && device_generator.device().is_privateuseone(),
              "a generator of the ", device_type_name(), " device is needed here, but this one is of ",
              device_generator.defined() ? device_generator.device().str() : "no device",
              "; make one with torch.Generator(device=\"", device_type_name(), "\")");
  return device_generator.get<DeviceGenerator>()->cpu();
}

}  // namespace opsmith
