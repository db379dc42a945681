// The generator of `rng: cpu`: a CPU generator under the device's name. Random operators that fall back are
// run by the CPU's kernels, which draw from it. So torch.Generator(device).manual_seed(3) gives the numbers
// of a CPU generator with seed 3, and a state saved from either fits the other.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <mutex>
#include <utility>

namespace opsmith {

class GeneratorOfCpu final : public c10::GeneratorImpl {
 public:
  GeneratorOfCpu(c10::DeviceIndex device, at::Generator cpu)
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
  GeneratorOfCpu* clone_impl() const override {
    const std::lock_guard lock(cpu_.unsafeGetGeneratorImpl()->mutex_);
    return new GeneratorOfCpu(device_.index(), cpu_.clone());
  }

  [[noreturn]] void throw_no_offset() const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "the generator of ", device_,
        " has no offset, because it draws the CPU's numbers (`rng: cpu`); use get_state() and set_state()");
  }

  at::Generator cpu_;
};

}  // namespace opsmith
