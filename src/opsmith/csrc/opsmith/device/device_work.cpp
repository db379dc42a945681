// See device_work.h.
#include <opsmith/device/device_work.h>

#include <tuple>

#include <opsmith/device/device.h>

namespace opsmith::profile {

namespace {

const WorkObserver* observer = nullptr;

}  // namespace

void observe_work(const WorkObserver& by) {
  observer = &by;
}

namespace detail {

void Drop::operator()(Work* work) const noexcept {
  observer->drop(work);
}

WorkPtr launch(const char* name, c10::DeviceIndex device) {
  return WorkPtr(observer->launch(name, device));
}

void begin(Work& work) noexcept {
  observer->begin(work);
}

void end(Work* work) noexcept {
  observer->end(work);
}

Work* begin_on_host(const char* name, Kind kind) {
  return begin_on_host(name, current_device(), kind, 0);
}

Work* begin_on_host(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes) {
  return observer->begin_on_host(name, device, kind, bytes);
}

Work* begin_on_stream(const char* name) {
  return begin_on_stream(name, current_device(), Kind::kKernel, 0);
}

Work* begin_on_stream(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes) {
  return observer->begin_on_stream(name, device, kind, bytes);
}

void set_bytes(Work& work, uint64_t bytes) noexcept {
  observer->set_bytes(work, bytes);
}

}  // namespace detail

void FallbackWork::begin(const std::string& operator_name, c10::DeviceIndex device) {
  std::tie(work_, is_own_) = observer->begin_fallback(operator_name, device);
}

void FallbackWork::set_bytes(uint64_t bytes) noexcept {
  if (work_ != nullptr) {
    detail::set_bytes(*work_, bytes);
  }
}

FallbackWork::~FallbackWork() {
  if (is_own_) {
    detail::end(work_);
  }
}

}  // namespace opsmith::profile
