// Work on the host of kernels, at once or as part of a graph. See opsmith/on_host.h.
#include <opsmith/on_host.h>

#include <memory>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/launch.h>
#include <opsmith/device/stream.h>

namespace opsmith::detail {

namespace {

class WorkOnHost final : public QueuedWork {
 public:
  WorkOnHost(const char* name, c10::DeviceIndex device, std::function<void()> work)
      : QueuedWork(name, device), work_(std::move(work)) {}

 private:
  void run() override { work_(); }

  const std::function<void()> work_;
};

}  // namespace

bool wait_unless_captured() {
  const c10::DeviceIndex device = current_device();
  if (C10_UNLIKELY(opsmith::current_stream_is_captured(device))) {
    return false;
  }
  wait_for_device(device);
  return true;
}

void record_on_host(const char* name, std::function<void()> work) {
  const c10::DeviceIndex device = current_device();
  opsmith::record_on_host(std::make_unique<WorkOnHost>(name, device, std::move(work)), current_stream(device),
                          device);
}

}  // namespace opsmith::detail
