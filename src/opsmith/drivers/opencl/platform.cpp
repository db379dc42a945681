// See platform.h.
#include "platform.h"

#include <cstdlib>

#include "errors.h"

namespace opencl {
namespace {

constexpr const char* kChoice = "OPSMITH_OPENCL_PLATFORM";
constexpr const char* kInstall =
    "; install one, such as apt-get install pocl-opencl-icd (Debian, Ubuntu), or name the folder of its .icd "
    "file in "
    "OCL_ICD_VENDORS";

template <class Ask>
std::string text(const Ask& ask) {
  size_t size = 0;
  check(ask(0, nullptr, &size), "ask for a name");
  std::string found(size, '\0');
  check(ask(size, found.data(), nullptr), "ask for a name");
  while (!found.empty() && found.back() == '\0') {
    found.pop_back();
  }
  return found;
}

std::string device_text(cl_device_id device, cl_uint what) {
  return text([&](size_t size, void* to, size_t* found) {
    return api().GetDeviceInfo(device, what, size, to, found);
  });
}

template <class T>
T device_value(cl_device_id device, cl_uint what) {
  T value{};
  check(api().GetDeviceInfo(device, what, sizeof(value), &value, nullptr), "ask for a device's properties");
  return value;
}

DeviceFacts facts_of(cl_device_id device) {
  return {.id = device,
          .name = device_text(device, kDeviceName),
          .version = device_text(device, kDeviceVersion) + ", " + device_text(device, kDriverVersion),
          .memory = device_value<cl_ulong>(device, kGlobalMemSize),
          .largest_allocation = device_value<cl_ulong>(device, kMaxMemAllocSize),
          .local_memory = device_value<cl_ulong>(device, kLocalMemSize),
          .group_items = device_value<size_t>(device, kMaxWorkGroupSize),
          .units = device_value<cl_uint>(device, kMaxComputeUnits),
          .is_cpu = (device_value<cl_ulong>(device, kDeviceType) & kDeviceTypeCpu) != 0,
          .has_double = device_value<cl_ulong>(device, kDoubleFpConfig) != 0};
}

std::vector<cl_device_id> devices_of(cl_platform_id platform) {
  cl_uint count = 0;
  if (api().GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count) != kSuccess) {
    return {};  // a platform without devices is an error of OpenCL's
  }
  std::vector<cl_device_id> devices(count);
  check(api().GetDeviceIDs(platform, kDeviceTypeAll, count, devices.data(), nullptr), "find the devices");
  return devices;
}

Platform open_platform() {
  cl_uint count = 0;
  const cl_int error = api().GetPlatformIDs(0, nullptr, &count);
  if (error == kPlatformNotFound || (error == kSuccess && count == 0)) {
    throw Failure(OPSMITH_FAILED, std::string("OpenCL has no platform here") + kInstall);
  }
  check(error, "find the platforms");
  std::vector<cl_platform_id> platforms(count);
  check(api().GetPlatformIDs(count, platforms.data(), nullptr), "find the platforms");
  const char* const choice = std::getenv(kChoice);  // NOLINT(concurrency-mt-unsafe)
  std::string seen;
  for (const cl_platform_id id : platforms) {
    const std::string name = text([&](size_t size, void* to, size_t* found) {
      return api().GetPlatformInfo(id, kPlatformName, size, to, found);
    });
    const std::vector<cl_device_id> devices = devices_of(id);
    seen += (seen.empty() ? "`" : ", `") + name + (devices.empty() ? "` (without a device)" : "`");
    if (devices.empty() || (choice != nullptr && name.find(choice) == std::string::npos)) {
      continue;
    }
    const intptr_t properties[] = {kContextPlatform, reinterpret_cast<intptr_t>(id), 0};
    cl_int failed = kSuccess;
    Platform opened{name,
                    {},
                    api().CreateContext(properties, static_cast<cl_uint>(devices.size()), devices.data(),
                                        nullptr, nullptr, &failed)};
    check(failed, "make a context");
    for (const cl_device_id device : devices) {
      opened.devices.push_back(facts_of(device));
    }
    return opened;
  }
  throw Failure(OPSMITH_FAILED,
                choice == nullptr
                    ? "none of OpenCL's platforms has a device: " + seen + kInstall
                    : std::string(kChoice) + " is `" + choice + "`, and OpenCL's platforms are " + seen);
}

}  // namespace

const Platform& platform() {
  static const Platform opened = open_platform();
  return opened;
}

const DeviceFacts& device_facts(int device) {
  const std::vector<DeviceFacts>& devices = platform().devices;
  if (device < 0 || static_cast<size_t>(device) >= devices.size()) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, "there is no device " + std::to_string(device) + ", only " +
                                                std::to_string(devices.size()));
  }
  return devices[static_cast<size_t>(device)];
}

}  // namespace opencl
