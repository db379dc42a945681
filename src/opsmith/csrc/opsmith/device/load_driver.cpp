// Opens the driver library, and checks that it keeps the contract.
#include <opsmith/device/load_driver.h>

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include <c10/util/Exception.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/launch.h>
#include <opsmith/device/waiting.h>
#include <opsmith/device/watched_streams.h>

namespace opsmith {

namespace {

// opsmith.load() shows the error of load_driver(), and sets the remedy apart at this mark.
constexpr const char* kRemedy = "\n  remedy: ";

struct RequiredEntry {
  const char* name;
  bool is_present;
};

void check_entries(const opsmith_driver& driver, const std::string& path) {
  const RequiredEntry required[] = {
      {"name", driver.name != nullptr},
      {"last_error", driver.last_error != nullptr},
      {"device_count", driver.device_count != nullptr},
      {"device_properties", driver.device_properties != nullptr},
      {"device_memory", driver.device_memory != nullptr},
      {"allocate", driver.allocate != nullptr},
      {"release", driver.release != nullptr},
      {"copy", driver.copy != nullptr},
      {"fill", driver.fill != nullptr},
      {"default_stream", driver.default_stream != nullptr},
      {"stream_create", driver.stream_create != nullptr},
      {"stream_destroy", driver.stream_destroy != nullptr},
      {"stream_query", driver.stream_query != nullptr},
      {"stream_synchronize", driver.stream_synchronize != nullptr},
  };
  for (const RequiredEntry& entry : required) {
    TORCH_CHECK(entry.is_present, "the driver ", path, " leaves the required entry `", entry.name, "` NULL",
                kRemedy, "implement it as opsmith_driver.h says");
  }
  const struct {
    const char* what;
    std::vector<bool> present;
  } optional[] = {
      {"events (event_* and stream_wait_event)",
       {driver.event_create != nullptr, driver.event_destroy != nullptr, driver.event_record != nullptr,
        driver.event_query != nullptr, driver.event_synchronize != nullptr, driver.event_elapsed != nullptr,
        driver.stream_wait_event != nullptr}},
      {"pinned memory (pinned_*)",
       {driver.pinned_allocate != nullptr, driver.pinned_release != nullptr,
        driver.pinned_contains != nullptr}},
      {"ranges (range_push and range_pop)", {driver.range_push != nullptr, driver.range_pop != nullptr}},
      {"memory that is shared between processes (memory_*)",
       {driver.memory_export != nullptr, driver.memory_import != nullptr, driver.memory_unimport != nullptr}},
      {"graphs (capture_*, stream_is_captured and graph_*)",
       {driver.capture_begin != nullptr, driver.capture_end != nullptr, driver.stream_is_captured != nullptr,
        driver.graph_launch != nullptr, driver.graph_destroy != nullptr, driver.graph_dump != nullptr}},
  };
  for (const auto& [what, present] : optional) {
    const auto count = std::count(present.begin(), present.end(), true);
    TORCH_CHECK(count == 0 || count == std::ssize(present), "the driver ", path, " has ", count, " of the ",
                present.size(), " entries for ", what, kRemedy, "implement all of them or none");
  }
}

// Sets the library that the table comes from.
const opsmith_driver& open_table(const std::string& path, void*& library) {
  // RTLD_LOCAL: a vendor's library must not offer its symbols to the rest of the process. Never closed: the
  // table lives as long as the process.
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe)
    TORCH_CHECK(false, "the driver cannot be opened: ", reason != nullptr ? reason : path, kRemedy,
                "build the driver, and make sure that the libraries it needs can be found (ldd ", path, ")");
  }
  const auto get_driver = reinterpret_cast<opsmith_get_driver_fn>(dlsym(library, OPSMITH_GET_DRIVER_SYMBOL));
  TORCH_CHECK(get_driver != nullptr, path, " is no opsmith driver: it does not export `",
              OPSMITH_GET_DRIVER_SYMBOL, "`", kRemedy, "declare it extern \"C\" with default visibility");
  const opsmith_driver* const driver = get_driver();
  TORCH_CHECK(driver != nullptr, "`", OPSMITH_GET_DRIVER_SYMBOL, "` of ", path, " returned NULL", kRemedy,
              "let it return the driver's table");
  TORCH_CHECK(
      driver->abi_version == OPSMITH_DRIVER_ABI_VERSION && driver->struct_size == sizeof(opsmith_driver),
      "the driver ", path, " was built with version ", driver->abi_version,
      " of opsmith_driver.h (a table of ", driver->struct_size, " bytes), but this opsmith has version ",
      OPSMITH_DRIVER_ABI_VERSION, " (", sizeof(opsmith_driver), " bytes)", kRemedy,
      "rebuild the driver with this opsmith's header");
  return *driver;
}

std::vector<LoadObserver>& observers() {
  static std::vector<LoadObserver> all;
  return all;
}

}  // namespace

void observe_load(LoadObserver observer) {
  observers().push_back(observer);
}

void load_driver(const std::string& path, bool use_host_window) {
  TORCH_CHECK(detail::loaded_driver == nullptr && !is_in_bad_fork(),
              "a driver is loaded already, and PyTorch has one slot for an out-of-tree device", kRemedy,
              "load ", path, " in a process of its own");
  void* library = nullptr;
  opsmith_driver driver = open_table(path, library);
  check_entries(driver, path);
  TORCH_CHECK(!use_host_window || driver.host_window != nullptr, "the driver ", path,
              " has no host window (its entry `host_window` is NULL), and the description counts on one",
              kRemedy,
              "add `host_window: off` to `driver` there: kernels that run on the host and the fallback then "
              "work on copies");
  allocator_settings();  // refuses what they cannot be
  int count = 0;
  const opsmith_status status = driver.device_count(&count);
  if (status != OPSMITH_OK) {
    const char* const text = driver.last_error();
    TORCH_CHECK(false, "the driver ", path,
                " cannot count its devices: ", text != nullptr ? text : "it does not say why", " (",
                status_name(status), ")", kRemedy, "see what the driver says");
  }
  TORCH_CHECK(count >= 0 && count <= kMostDevices, "the driver ", path, " reports ", count,
              " devices; opsmith can use up to ", kMostDevices, kRemedy, "let the driver show fewer");
  if (!use_host_window) {
    driver.host_window = nullptr;
  }
  if (allocator_settings().debug) {
    watch_streams(driver);
  }
  detail::set_device_count(static_cast<c10::DeviceIndex>(count));
  detail::set_driver(driver, library);
  prepare_launches();
  prepare_waiting();
  for (const LoadObserver& tell : observers()) {
    tell();
  }
}

}  // namespace opsmith
