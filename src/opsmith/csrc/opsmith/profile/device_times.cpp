// How long operators keep the device busy, for torch.autograd.profiler.profile(use_device=…): an event of the
// driver before and after each operator, on the current stream. Without events in the driver, the host waits
// for the stream and looks at its clock.
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/given.h>
#include <opsmith/device/stream.h>

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace opsmith {
namespace {

struct Destroy {
  void operator()(opsmith_event event) const {
    // No driver: a forked child drops what its parent has recorded.
    if (detail::loaded_driver != nullptr) {
      detail::loaded_driver->event_destroy(event);
    }
  }
};

// A moment of the device's current stream; without an event, of the host when the stream had reached it.
class Moment {
 public:
  Moment() : device_(current_device()) {
    const opsmith_stream stream = current_stream(device_);
    if (driver().event_create != nullptr) {
      opsmith_event created = nullptr;
      check(driver().event_create(device_, /*timing=*/1, &created), "create an event", device_);
      event_.reset(checked_given(created, "event_create", device_));
      check(driver().event_record(created, stream), "record an event", device_);
    } else {
      synchronize_stream(stream, device_);
    }
    host_ns_ = c10::getTime();
  }

  // Microseconds; between two devices, as the host saw it.
  double until(const Moment& later) const {
    if (event_ == nullptr || later.event_ == nullptr || device_ != later.device_) {
      return static_cast<double>(later.host_ns_ - host_ns_) / 1000;
    }
    check(driver().event_synchronize(later.event_.get()), "wait for an event", device_);
    double milliseconds = 0;
    check(driver().event_elapsed(event_.get(), later.event_.get(), &milliseconds),
          "take the time between two events", device_);
    return milliseconds * 1000;
  }

  c10::DeviceIndex device() const { return device_; }
  int64_t host_ns() const { return host_ns_; }

 private:
  c10::DeviceIndex device_;
  std::unique_ptr<std::remove_pointer_t<opsmith_event>, Destroy> event_;
  int64_t host_ns_ = 0;
};

using torch::profiler::impl::ProfilerVoidEventStub;

struct DeviceTimes final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    auto moment = std::make_shared<Moment>();
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

  // There is no tool of the device's to show marks in.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

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
