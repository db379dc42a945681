// See device.h.
#include "device.h"

#include "errors.h"

namespace cuda {
namespace {

int attribute(CUdevice device, int which) {
  int value = 0;
  check(api().DeviceGetAttribute(&value, which, device), "ask for a device's properties");
  return value;
}

Device open_device(int index) {
  Device device{};
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
  check(api().DevicePrimaryCtxRetain(&device.context, device.id), "open a device");
  return device;
}

std::vector<Device> find_devices() {
  int count = 0;
  check(api().DeviceGetCount(&count), "count the devices");
  std::vector<Device> found;
  for (int index = 0; index < count; ++index) {
    found.push_back(open_device(index));
  }
  return found;
}

}  // namespace

const std::vector<Device>& devices() {
  static const auto* const found = new std::vector<Device>(find_devices());
  return *found;
}

const Device& use_device(int device) {
  thread_local int current = -1;
  if (device < 0 || static_cast<size_t>(device) >= devices().size()) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, "there is no device " + std::to_string(device) + ", only " +
                                                std::to_string(devices().size()));
  }
  const Device& found = devices()[static_cast<size_t>(device)];
  if (current != device) {
    check(api().CtxSetCurrent(found.context), "use a device");
    current = device;
  }
  return found;
}

}  // namespace cuda
