// Streams as PyTorch numbers them. Per device, id 0 is the default stream and the others come from two pools,
// one for each urgency; they are made when first asked for and never destroyed, because PyTorch's Stream is a
// plain value that anybody may keep.
#include <opsmith/device/stream.h>

#include <opsmith_device.h>

#include <array>
#include <atomic>

#include <c10/util/Exception.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>

namespace opsmith {

namespace {

constexpr int kPoolSize = 32;
constexpr int kStreamsPerDevice = 1 + 2 * kPoolSize;

struct DeviceStreams {
  std::array<std::atomic<opsmith_stream>, kStreamsPerDevice>
      handles{};  // by stream id; nullptr: not made yet
  std::atomic<uint32_t> next_normal{0};
  std::atomic<uint32_t> next_urgent{0};
};

constinit std::array<DeviceStreams, kMostDevices> all_streams{};

// The id of the current stream of each device in this thread.
constinit thread_local std::array<uint8_t, kMostDevices> current_ids{};

// Without a lock while the driver works: a driver in Python waits for the interpreter's, which another thread
// may hold that wants a stream too. Of two threads that make the same stream one gives its own back.
opsmith_stream make_stream(c10::DeviceIndex device, int64_t id) {
  checked_device(device);
  std::atomic<opsmith_stream>& handle = all_streams[device].handles[id];
  opsmith_stream made = handle.load(std::memory_order_acquire);
  if (made != nullptr) {
    return made;
  }
  if (id == 0) {
    check(driver().default_stream(device, &made), "get the default stream", device);
    checked_result(made, "default_stream", device);
  } else {
    check(driver().stream_create(device, id > kPoolSize ? -1 : 0, &made), "create a stream", device);
    checked_result(made, "stream_create", device);
  }
  opsmith_stream earlier = nullptr;
  if (handle.compare_exchange_strong(earlier, made, std::memory_order_acq_rel)) {
    return made;
  }
  if (id != 0) {
    driver().stream_destroy(made);
  }
  return earlier;
}

[[maybe_unused]] const bool ids_are_known = [] {
  detail::id_of_stream = stream_id;
  return true;
}();

}  // namespace

opsmith_stream native_stream(c10::Stream stream) {
  const c10::DeviceIndex device = checked_device(stream.device_index());
  const int64_t id = stream.id();
  const opsmith_stream handle = id >= 0 && id < kStreamsPerDevice
                                    ? all_streams[device].handles[id].load(std::memory_order_acquire)
                                    : nullptr;
  if (C10_LIKELY(handle != nullptr)) {
    return handle;
  }
  TORCH_CHECK(id == 0, stream.device(), " has no stream with id ", id,
              "; create one with torch.Stream(device=\"", stream.device(), "\")");
  return make_stream(device, 0);
}

opsmith_stream current_stream(c10::DeviceIndex device) {
  if (device < 0) {
    device = current_device();
  }
  const uint8_t id = current_ids[device];
  const opsmith_stream stream = all_streams[device].handles[id].load(std::memory_order_acquire);
  return C10_LIKELY(stream != nullptr) ? stream : make_stream(device, id);
}

int64_t current_stream_id(c10::DeviceIndex device) {
  return current_ids[checked_device(device)];
}

int64_t exchange_stream(c10::Stream stream) {
  const c10::DeviceIndex device = checked_device(stream.device_index());
  native_stream(stream);  // throws when there is no such stream
  const int64_t previous = current_ids[device];
  current_ids[device] = static_cast<uint8_t>(stream.id());
  return previous;
}

int64_t new_stream(c10::DeviceIndex device, int priority) {
  device = checked_device(device);
  DeviceStreams& streams = all_streams[device];
  const bool urgent = priority < 0;
  const uint32_t turn = (urgent ? streams.next_urgent : streams.next_normal)++;
  const int64_t id = 1 + (urgent ? kPoolSize : 0) + turn % kPoolSize;
  make_stream(device, id);
  return id;
}

int64_t stream_id(opsmith_stream stream, c10::DeviceIndex device) {
  const auto& handles = all_streams[device].handles;
  for (size_t id = 0; id < handles.size(); ++id) {
    if (handles[id].load(std::memory_order_acquire) == stream) {
      return static_cast<int64_t>(id);
    }
  }
  return -1;
}

void each_stream(c10::DeviceIndex device, c10::function_ref<void(opsmith_stream)> visit) {
  for (const auto& handle : all_streams[device].handles) {
    if (const opsmith_stream stream = handle.load(std::memory_order_acquire); stream != nullptr) {
      visit(stream);
    }
  }
}

}  // namespace opsmith

extern "C" {

int opsmith_current_device(void) {
  return opsmith::current_device();
}

opsmith_stream opsmith_current_stream(int device) {
  return opsmith::current_stream(static_cast<c10::DeviceIndex>(device));
}

}  // extern "C"
