// See copy_bytes.h.
#include <opsmith/device/copy_bytes.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device_work.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/late_failure.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>

namespace opsmith {
namespace {

// The name of a copy for profilers, in the words that they have for any device.
const char* copy_name(bool from_device, bool to_device) {
  return from_device ? (to_device ? "Memcpy DtoD" : "Memcpy DtoH") : "Memcpy HtoD";
}

c10::DeviceIndex device_of_copy(int destination_device, int source_device) {
  return static_cast<c10::DeviceIndex>(source_device != OPSMITH_HOST ? source_device : destination_device);
}

}  // namespace

void queue_copy(void* destination, int destination_device, const void* source, int source_device,
                size_t bytes, const char* action, c10::DeviceIndex device) {
  const c10::DeviceIndex place = device_of_copy(destination_device, source_device);
  const profile::StreamWork work(copy_name(source_device != OPSMITH_HOST, destination_device != OPSMITH_HOST),
                                 place, profile::Kind::kCopy, bytes);
  if (C10_UNLIKELY(waits_are_limited()) && !current_stream_is_captured(place) &&
      (source_device == OPSMITH_HOST || destination_device == OPSMITH_HOST)) {
    wait_for_stream(current_stream(place), place, action);  // the driver itself would wait without a limit
  }
  check(driver().copy(destination, destination_device, source, source_device, bytes, current_stream(place)),
        action, device);
}

void record_copy(void* destination, int destination_device, const void* source, int source_device,
                 size_t bytes) {
  queue_copy(destination, destination_device, source, source_device, bytes, "record a copy",
             device_of_copy(destination_device, source_device));
}

void copy_bytes(void* destination, int destination_device, const void* source, int source_device,
                size_t bytes) {
  if (bytes == 0) {
    return;
  }
  const c10::DeviceIndex device = device_of_copy(destination_device, source_device);
  refuse_if_captured("a copy of bytes", "it waits for the device", device);
  queue_copy(destination, destination_device, source, source_device, bytes, "copy memory", device);
  wait_for_stream(current_stream(device), device, "wait for a copy");
  raise_late_failure();
}

}  // namespace opsmith
