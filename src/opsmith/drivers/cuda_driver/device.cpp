// See device.h.
#include "device.h"

#include <memory>

#include "errors.h"

namespace cuda {
namespace {

int attribute(CUdevice device, int which) {
  int value = 0;
  check(api().DeviceGetAttribute(&value, which, device), "ask for a device's properties");
  return value;
}

void describe(Device& device, int index) {
  check(api().DeviceGet(&device.id, index), "find a device");
  char name[128] = "";
  check(api().DeviceGetName(name, sizeof(name), device.id), "ask for a device's name");
  device.name = name;
  check(api().DeviceTotalMem(&device.memory, device.id), "ask for a device's memory");
  device.group_items = attribute(device.id, kMaxThreadsPerBlock);
  device.local_memory = attribute(device.id, kMaxSharedMemory);
  device.multiprocessors = attribute(device.id, kMultiprocessors);
  device.major = attribute(device.id, kComputeMajor);
  device.minor = attribute(device.id, kComputeMinor);
}

const std::deque<Device>* find_devices() {
  int count = 0;
  check(api().DeviceGetCount(&count), "count the devices");
  auto found = std::make_unique<std::deque<Device>>(static_cast<size_t>(count));
  for (int index = 0; index < count; ++index) {
    describe((*found)[static_cast<size_t>(index)], index);
  }
  return found.release();
}

}  // namespace

CUcontext Device::context() const {
  std::call_once(is_open_, [this] { check(api().DevicePrimaryCtxRetain(&context_, id), "open a device"); });
  return context_;
}

const std::deque<Device>& devices() {
  static const auto* const found = find_devices();
  return *found;
}

const Device& device_at(int device) {
  if (device < 0 || static_cast<size_t>(device) >= devices().size()) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, "there is no device " + std::to_string(device) + ", only " +
                                                std::to_string(devices().size()));
  }
  return devices()[static_cast<size_t>(device)];
}

const Device& use_device(int device) {
  const Device& found = device_at(device);
  // Asked each time: PyTorch's own CUDA changes it too.
  CUcontext current = nullptr;
  check(api().CtxGetCurrent(&current), "ask for the device in use");
  if (current != found.context()) {
    check(api().CtxSetCurrent(found.context()), "use a device");
  }
  return found;
}

}  // namespace cuda
