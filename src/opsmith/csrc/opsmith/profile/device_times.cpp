// How long operators keep the device busy, for torch.autograd.profiler.profile(use_device=…): an event of the
// driver before and after each operator, on the current stream.
#include <opsmith/device/device.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/profile/moment.h>
#include <opsmith/profile/ranges.h>

#include <torch/csrc/profiler/stubs/base.h>

#include <functional>
#include <memory>
#include <utility>

namespace opsmith {
namespace {

using profile::Moment;
using torch::profiler::impl::ProfilerVoidEventStub;

struct DeviceTimes final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    auto moment = std::make_shared<Moment>(current_device());
    if (device != nullptr) {
      *device = moment->device();
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = moment->host_ns();
    }
    *event = std::move(moment);
  }

  float elapsed(const ProfilerVoidEventStub* event, const ProfilerVoidEventStub* later) const override {
    const auto& start = *static_cast<const Moment*>(event->get());
    return static_cast<float>(start.until(*static_cast<const Moment*>(later->get())));
  }

  void mark(const char* text) const override { profile::mark(text); }
  void rangePush(const char* text) const override { profile::push_range(text); }
  void rangePop() const override { profile::pop_range(); }

  bool enabled() const override { return device_count() > 0; }

  void onEachDevice(std::function<void(int)> visit) const override {
    const c10::DeviceIndex before = current_device();
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      exchange_device(device);
      visit(device);
    }
    exchange_device(before);
  }

  void synchronize() const override { synchronize_device(current_device()); }
};

[[maybe_unused]] const bool device_times_registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new DeviceTimes);  // never destroyed
  return true;
}();

}  // namespace
}  // namespace opsmith
