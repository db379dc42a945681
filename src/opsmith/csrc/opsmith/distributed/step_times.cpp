// When the parts of a DistributedDataParallel step ran on the device, for its statistics.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>
#include <optional>

#include <opsmith/device/driver.h>

namespace opsmith {

namespace {

// As PyTorch's for CUDA: by events on the current stream, where the driver has them.
class StepTimes final : public c10d::Timer {
 public:
  explicit StepTimes(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    std::optional<c10::Event>& slot = at(event);
    slot.emplace(c10::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
    slot->record(c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getStream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<c10::Event>&begin = at(start), &finish = at(end);
    if (!begin || !finish) {
      return std::nullopt;
    }
    begin->synchronize();
    finish->synchronize();
    if (driver().event_elapsed == nullptr) {
      return *getTimestamp(end) - *getTimestamp(start);
    }
    const double milliseconds = begin->elapsedTime(*finish);
    // As PyTorch's: events of which one is of an earlier step.
    return milliseconds < 0 ? std::nullopt : std::make_optional(static_cast<int64_t>(1e6 * milliseconds));
  }

 private:
  std::optional<c10::Event>& at(Event event) { return events_.at(static_cast<size_t>(event)); }

  c10::Device device_;
  std::array<std::optional<c10::Event>, 5> events_;
};

}  // namespace

}  // namespace opsmith

namespace c10d {

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, opsmith::StepTimes)

}  // namespace c10d
