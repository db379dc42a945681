// See moment.h.
#include <opsmith/profile/moment.h>

#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>

namespace opsmith::profile {

void Moment::Destroy::operator()(opsmith_event event) const noexcept {
  // No driver: a forked child drops what its parent has recorded.
  if (opsmith::detail::loaded_driver != nullptr) {
    opsmith::detail::loaded_driver->event_destroy(event);
  }
}

Moment::Moment(c10::DeviceIndex device) : device_(device) {
  const opsmith_stream stream = current_stream(device_);
  if (driver().event_create != nullptr) {
    opsmith_event created = nullptr;
    check(driver().event_create(device_, /*timing=*/1, &created), "create an event", device_);
    event_.reset(checked_result(created, "event_create", device_));
    check(driver().event_record(created, stream), "record an event", device_);
  } else {
    synchronize_stream(stream, device_);
  }
  host_ns_ = c10::getTime();
}

double Moment::until(const Moment& later) const {
  if (event_ == nullptr || later.event_ == nullptr || device_ != later.device_) {
    return static_cast<double>(later.host_ns_ - host_ns_) / 1000;
  }
  later.wait();
  double milliseconds = 0;
  check(driver().event_elapsed(event_.get(), later.event_.get(), &milliseconds),
        "take the time between two events", device_);
  return milliseconds * 1000;
}

void Moment::wait() const {
  if (event_ != nullptr) {
    wait_for_event(event_.get(), device_, "wait for an event");
  }
}

}  // namespace opsmith::profile
