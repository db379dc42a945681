// The operators of the `opsmith` namespace with which Python's device module reaches the driver: what
// torch.accelerator does not offer already.
#include <string>
#include <tuple>

#include <torch/library.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/generator.h>
#include <opsmith/device/load_driver.h>
#include <opsmith/random_numbers.h>

namespace opsmith {

namespace {

c10::DeviceIndex device_argument(int64_t device) {
  TORCH_CHECK(device >= -1 && device < kMostDevices, device_type_name(), ":", device,
              " does not exist: device indices are below ", kMostDevices);
  return checked_device(static_cast<c10::DeviceIndex>(device));
}

using Properties = std::tuple<std::string, std::string, int64_t, int64_t, int64_t>;

Properties device_properties(int64_t index) {
  const c10::DeviceIndex device = device_argument(index);
  opsmith_device_properties properties{};
  check(driver().device_properties(device, &properties), "ask for the properties", device);
  return {properties.name, properties.architecture, static_cast<int64_t>(properties.total_memory),
          properties.alignment, properties.multiprocessors};
}

std::string driver_name() {
  return driver().name;
}

at::Generator default_generator_of(int64_t device) {
  return default_generator(device_argument(device));
}

// As signed numbers: schemas have no others.
std::tuple<int64_t, int64_t> take_philox_numbers_for(int64_t count, std::optional<at::Generator> generator,
                                                     int64_t device) {
  TORCH_CHECK_VALUE(count >= 0, "cannot take ", count, " random numbers");
  if (!generator.has_value()) {
    generator = default_generator(device_argument(device));
  }
  const PhiloxNumbers taken = take_philox_numbers(static_cast<uint64_t>(count), generator);
  return {static_cast<int64_t>(taken.seed), static_cast<int64_t>(taken.offset)};
}

void check_status(int64_t status, const std::string& action, int64_t device) {
  check(static_cast<opsmith_status>(status), action.c_str(), device_argument(device));
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("load_driver(str path, bool use_host_window) -> ()", &load_driver);
  m.def("driver_name() -> str", &driver_name);
  m.def("is_in_bad_fork() -> bool", &is_in_bad_fork);
  m.def(
      "device_properties(int device) -> (str name, str architecture, int total_memory, int alignment, "
      "int multiprocessors)",
      &device_properties);
  m.def("check_status(int status, str action, int device) -> ()", &check_status);
  m.def("draw_numbers_of_the_cpu() -> ()", &draw_numbers_of_the_cpu);
  m.def("take_philox_numbers(int count, Generator? generator, int device) -> (int seed, int offset)",
        &take_philox_numbers_for);
  // Never None, but PyTorch's schemas know at::Generator only as `Generator?`.
  m.def("default_generator(int device) -> Generator?", &default_generator_of);
}

}  // namespace

}  // namespace opsmith
