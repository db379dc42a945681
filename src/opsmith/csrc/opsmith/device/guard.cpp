// PyTorch's device guard for the device: its current device, streams and events, translated into calls of the
// driver.
//
// Without events in the driver, an event is the stream on which it was recorded: waiting for it waits for all
// of that stream, on the host, and elapsed time raises.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/device/waiting.h>
#include <opsmith/device/stream.h>
#include <opsmith/torch_version.h>

#include <utility>

namespace opsmith {

namespace {

c10::Device device_at(c10::DeviceIndex index) {
  return c10::Device(c10::kPrivateUse1, index);
}

c10::Stream stream_at(c10::DeviceIndex index, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(index), id);
}

bool has_events() {
  return driver().event_create != nullptr;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }

  // ---- devices ----

  c10::Device exchangeDevice(c10::Device device) const override {
    return device_at(device.has_index() ? exchange_device(device.index()) : current_device());
  }

  c10::Device getDevice() const override { return device_at(current_device()); }

  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      exchange_device(device.index());
    }
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    // An index that was current before is still valid; any other is ignored rather than thrown from a
    // destructor.
    if (device.index() >= 0 && device.index() < device_count()) {
      exchange_device(device.index());
    }
  }

  // In a child of fork() there is none: the engine of backward(), on whatever device, starts a thread for
  // each, and several that start at a time after a fork race for PyTorch's pool of threads, and abort.
  c10::DeviceIndex deviceCount() const noexcept override { return is_in_bad_fork() ? 0 : device_count(); }

  // The dtypes that copies convert: PyTorch's default has quantized ones, bits and parts of a byte besides.
  c10::DeviceCapability getDeviceCapability(c10::Device) const OPSMITH_OVERRIDE_SINCE_2_10 {
    c10::DeviceCapability capability;
    uint64_t& bits = capability.capability_data.capability_bits;
    bits = 0;
    for (const c10::ScalarType dtype :
         {c10::kByte,          c10::kChar,          c10::kShort,           c10::kInt,
          c10::kLong,          c10::kUInt16,        c10::kUInt32,          c10::kUInt64,
          c10::kBool,          c10::kHalf,          c10::kBFloat16,        c10::kFloat,
          c10::kDouble,        c10::kComplexHalf,   c10::kComplexFloat,    c10::kComplexDouble,
          c10::kFloat8_e5m2,   c10::kFloat8_e4m3fn, c10::kFloat8_e5m2fnuz, c10::kFloat8_e4m3fnuz,
          c10::kFloat8_e8m0fnu}) {
      bits |= uint64_t{1} << static_cast<unsigned>(dtype);
    }
    return capability;
  }

  void synchronizeDevice(c10::DeviceIndex device) const override { synchronize_device(device); }

  // ---- streams ----

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = checked_device(device.index());
    return stream_at(index, current_stream_id(index));
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_at(checked_device(device.index()), 0);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool isHighPriority) const override {
    return getNewStream(device, isHighPriority ? -1 : 0);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const c10::DeviceIndex index = checked_device(device.index());
    return stream_at(index, new_stream(index, priority));
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_at(stream.device_index(), exchange_stream(stream));
  }

  void* getStreamNativeHandle(const c10::Stream stream) const OPSMITH_OVERRIDE_SINCE_2_11 {
    return native_stream(stream);
  }

  bool queryStream(const c10::Stream& stream) const override {
    const opsmith_status status = driver().stream_query(native_stream(stream));
    if (status != OPSMITH_NOT_READY) {
      check(status, "query a stream", stream.device_index());
    }
    return status == OPSMITH_OK;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(native_stream(stream), stream.device_index());
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator().recordStream(data, stream);
  }

  // ---- events. `event` holds the driver's event; without those, the stream that was recorded last. ----

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex recorded_on,
              const c10::EventFlag flag) const override {
    const c10::DeviceIndex device = stream.device_index();
    TORCH_CHECK(recorded_on == -1 || recorded_on == device, "an event that was recorded on ",
                device_at(recorded_on), " cannot be recorded on ", device_at(device),
                "; use an event for each device");
    const opsmith_stream handle = native_stream(stream);
    if (!has_events()) {
      *event = handle;
      return;
    }
    try {
      auto recorded = static_cast<opsmith_event>(*event);
      if (recorded == nullptr) {
        const int timing = flag == c10::EventFlag::BACKEND_DEFAULT ? 1 : 0;
        check(driver().event_create(device, timing, &recorded), "create an event", device);
        checked_result(recorded, "event_create", device);
        *event = recorded;
      }
      check(driver().event_record(recorded, handle), "record an event", device);
    } catch (const c10::Error&) {
      if (!WaitsForWantOfEvents::is_on) {
        throw;
      }
      destroyEvent(std::exchange(*event, nullptr), device);  // that is null is over
      finish_stream(handle, device);
    }
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) {
      return;
    }
    if (!has_events()) {
      synchronizeEvent(event);
      return;
    }
    check(driver().stream_wait_event(native_stream(stream), static_cast<opsmith_event>(event)),
          "make a stream wait for an event", stream.device_index());
  }

  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    const opsmith_status status = has_events() ? driver().event_query(static_cast<opsmith_event>(event))
                                               : driver().stream_query(static_cast<opsmith_stream>(event));
    if (status != OPSMITH_NOT_READY) {
      check(status, "query an event", current_device());
    }
    return status == OPSMITH_OK;
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) {
      return;
    }
    if (has_events()) {
      wait_for_event(static_cast<opsmith_event>(event), current_device(), "synchronise an event");
    } else {
      wait_for_stream(static_cast<opsmith_stream>(event), current_device(), "synchronise an event");
    }
    raise_late_failure();
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex device) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        has_events(), "the driver \"", driver().name, "\" of the ", device_type_name(),
        " device has no events, so the time between two of them is not known; measure on the "
        "host, around torch.accelerator.synchronize()");
    double milliseconds = 0;
    check(driver().event_elapsed(static_cast<opsmith_event>(start), static_cast<opsmith_event>(end),
                                 &milliseconds),
          "take the time between two events", device);
    return milliseconds;
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    // No driver: a forked child drops an event of its parent's, which is not ours to destroy.
    if (detail::loaded_driver != nullptr && detail::loaded_driver->event_destroy != nullptr &&
        event != nullptr) {
      detail::loaded_driver->event_destroy(static_cast<opsmith_event>(event));
    }
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

}  // namespace opsmith
