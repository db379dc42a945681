// See driver_memory.h.
#include <opsmith/device/driver_memory.h>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/unwatched.h>

namespace opsmith {

namespace {

opsmith_stream native(caching::Stream stream) {
  return static_cast<opsmith_stream>(stream);
}

opsmith_event native_event(caching::Event event) {
  return static_cast<opsmith_event>(event);
}

}  // namespace

caching::NewMemory DriverMemory::allocate(size_t bytes) {
  void* data = nullptr;
  const opsmith_status status = driver().allocate(device_, bytes, &data);
  if (status == OPSMITH_OUT_OF_MEMORY) {
    return {nullptr, last_error()};
  }
  if (C10_UNLIKELY(status != OPSMITH_OK)) {
    check(status, c10::str("allocate ", bytes, " bytes").c_str(), device_);
  }
  checked_result(data, "allocate", device_);
  check_window(data, bytes);
  return {data, {}};
}

// Refuses what would end in a crash: memory that the window does not show.
void DriverMemory::check_window(void* data, size_t bytes) {
  const auto window = driver().host_window;
  if (window != nullptr && C10_UNLIKELY(window(data) == nullptr)) {
    detail::loaded_driver->release(device_, data);
    TORCH_CHECK(false, "the driver \"", driver().name, "\" has a host window, but none for the ", bytes,
                " bytes that it allocated on ", c10::Device(c10::kPrivateUse1, device_),
                ". Let `host_window` give their address, or say `host_window: off` in the description.");
  }
}

void DriverMemory::release(void* data) noexcept {
  // Nothing can be done here about a failure; the next call on a lost device raises.
  detail::loaded_driver->release(device_, data);
}

std::pair<uint64_t, uint64_t> DriverMemory::free_and_total() noexcept {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  detail::loaded_driver->device_memory(device_, &free_bytes, &total_bytes);
  return {free_bytes, total_bytes};
}

bool DriverMemory::is_idle(caching::Stream stream) noexcept {
  const Unwatched scope;
  return detail::loaded_driver->stream_query(native(stream)) == OPSMITH_OK;
}

void DriverMemory::synchronize(caching::Stream stream) noexcept {
  const Unwatched scope;
  finish([stream] { return detail::loaded_driver->stream_synchronize(native(stream)); }, device_);
}

bool DriverMemory::is_captured(caching::Stream stream) noexcept {
  return opsmith::is_captured(native(stream));
}

caching::Event DriverMemory::make_event() noexcept {
  opsmith_event event = nullptr;
  if (detail::loaded_driver->event_create == nullptr ||
      detail::loaded_driver->event_create(device_, /*timing=*/0, &event) != OPSMITH_OK) {
    return nullptr;
  }
  return event;
}

bool DriverMemory::record(caching::Event event, caching::Stream stream) noexcept {
  return !is_captured(stream) &&
         detail::loaded_driver->event_record(native_event(event), native(stream)) == OPSMITH_OK;
}

bool DriverMemory::is_done(caching::Event event) noexcept {
  const Unwatched scope;
  const opsmith_status status = detail::loaded_driver->event_query(native_event(event));
  if (C10_UNLIKELY(status != OPSMITH_OK && status != OPSMITH_NOT_READY)) {
    synchronize_event(event);
    return true;
  }
  return status == OPSMITH_OK;
}

void DriverMemory::synchronize_event(caching::Event event) noexcept {
  const Unwatched scope;
  finish([event] { return detail::loaded_driver->event_synchronize(native_event(event)); }, device_);
}

void DriverMemory::fill(void* data, uint8_t value, size_t bytes, caching::Stream stream) noexcept {
  const Unwatched scope;
  if (bytes > 0 && succeeded(detail::loaded_driver->fill(device_, data, value, bytes, native(stream)))) {
    synchronize(stream);
  }
}

bool DriverMemory::read(void* host, const void* data, size_t bytes, caching::Stream stream) noexcept {
  const Unwatched scope;
  return succeeded(detail::loaded_driver->copy(host, OPSMITH_HOST, data, device_, bytes, native(stream))) &&
         succeeded(detail::loaded_driver->stream_synchronize(native(stream)));
}

void DriverMemory::report(const std::string& what) noexcept {
  keep_failure(OPSMITH_FAILED, c10::str(c10::Device(c10::kPrivateUse1, device_), ": ", what));
}

bool DriverMemory::succeeded(opsmith_status status) noexcept {
  if (C10_UNLIKELY(status != OPSMITH_OK)) {
    keep_failure(status, device_);
  }
  return status == OPSMITH_OK;
}

}  // namespace opsmith
