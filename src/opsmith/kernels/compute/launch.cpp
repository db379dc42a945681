// See launch.h.
#include "launch.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>

namespace opsmith::compute {
namespace {

// Behind the driver's own part of the dialect.
constexpr const char* kTypes =
#include "types.cl"
    ;

struct Kernels {
  std::shared_mutex mutex;
  std::unordered_map<std::string, opsmith_compute_kernel> compiled;
};

// Of each device. Never destroyed: threads may still launch while the process ends.
Kernels& kernels_of(c10::DeviceIndex device) {
  static auto* const kernels = new std::array<Kernels, kMostDevices>;
  return (*kernels)[static_cast<size_t>(device)];
}

}  // namespace

const opsmith_compute_limits& limits() {
  static auto* const all = [] {
    auto* const found = new std::array<opsmith_compute_limits, kMostDevices>;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      check(opsmith_compute_device_limits(device, &(*found)[static_cast<size_t>(device)]), "ask for limits",
            device);
    }
    return found;
  }();
  return (*all)[static_cast<size_t>(current_device())];
}

void Words::refuse() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "tensors of so many dimensions that lie differently are not supported on ",
                              c10::Device(c10::kPrivateUse1, current_device()),
                              ". Make them contiguous, or view them with fewer dimensions, first");
}

opsmith_compute_kernel kernel(const char* source, const std::string& definitions, const char* prelude) {
  const c10::DeviceIndex device = current_device();
  Kernels& kernels = kernels_of(device);
  // A literal's address stands for its text.
  std::string key(reinterpret_cast<const char*>(&source), sizeof(source));
  key += definitions;
  {
    const std::shared_lock lock(kernels.mutex);
    if (const auto found = kernels.compiled.find(key); found != kernels.compiled.end()) {
      return found->second;
    }
  }
  const opsmith_compute_kernel made = kernel_of(definitions + prelude + source);
  const std::unique_lock lock(kernels.mutex);
  return kernels.compiled.emplace(std::move(key), made).first->second;
}

opsmith_compute_kernel kernel_of(const std::string& text) {
  const c10::DeviceIndex device = current_device();
  const std::string all = std::string(opsmith_compute_dialect()) + kTypes + text;
  opsmith_compute_kernel made = nullptr;
  check(opsmith_compute_compile(device, all.c_str(), "run", &made), "compile a kernel", device);
  return made;
}

void launch(const char* name, opsmith_compute_kernel kernel, const Arguments& arguments, const Grid& grid) {
  const c10::DeviceIndex device = current_device();
  const opsmith_status status =
      opsmith_compute_launch(kernel, current_stream(device), grid.groups.data(), grid.items.data(),
                             arguments.data(), arguments.count());
  check(status, name, device);
}

Grid linear(int64_t count) {
  const int64_t items = limits().is_cpu != 0 ? 1024 : 256;
  Grid grid;
  grid.items[0] = static_cast<size_t>(items);
  grid.groups[0] = static_cast<size_t>(ceil_div(count, items));
  return grid;
}

Grid spread(int64_t count) {
  Grid grid = linear(count);
  if (limits().is_cpu == 0) {
    return grid;
  }
  const int64_t share = ceil_div(count, 4 * static_cast<int64_t>(limits().units));
  grid.items[0] = std::min(grid.items[0], static_cast<size_t>(share));
  grid.groups[0] = static_cast<size_t>(ceil_div(count, static_cast<int64_t>(grid.items[0])));
  return grid;
}

Grid plane(int64_t count, int64_t rows) {
  constexpr int64_t kMostRows = 32768;  // CUDA's second dimension is short
  const size_t most = linear(1).items[0];
  Grid grid;
  grid.items[0] = most;
  while (rows > 1 && grid.items[0] > 1 && static_cast<int64_t>(grid.items[0]) / 2 >= count) {
    grid.items[0] /= 2;
  }
  grid.items[1] = most / grid.items[0];
  grid.groups[0] = static_cast<size_t>(ceil_div(count, static_cast<int64_t>(grid.items[0])));
  grid.groups[1] =
      static_cast<size_t>(std::min(kMostRows, ceil_div(rows, static_cast<int64_t>(grid.items[1]))));
  return grid;
}

}  // namespace opsmith::compute
