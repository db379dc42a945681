// Words the driver's failures. Owns the process's one table of entries, and takes it away in a forked child,
// where the device cannot work.
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/launched_last.h>

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <exception>
#include <mutex>
#include <utility>

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

namespace {

// The loaded table. A copy, because the description may hide optional entries.
opsmith_driver table;
void* library = nullptr;  // which it came from

bool has_forked = false;

// In a child of fork() the driver's threads do not exist and its memory is shared with the parent, so every
// call would hang or corrupt. Without the table each use of the device ends in throw_no_driver() instead, at
// no cost for the calls that are right.
void forget_driver_in_child() {
  if (detail::loaded_driver != nullptr) {
    detail::loaded_driver = nullptr;
    has_forked = true;
  }
}

constexpr const char* kDriversMistake =
    "This is a mistake of the driver, which `opsmith driver check` finds: report it to its authors.";

const char* remedy(opsmith_status status) {
  switch (status) {
    case OPSMITH_OUT_OF_MEMORY:
      return "Free tensors on this device or use a smaller batch.";
    case OPSMITH_FAILED:
      return "The device is still usable.";
    case OPSMITH_DEVICE_LOST:
      return "The device and its tensors are gone: restart the process and continue from a checkpoint.";
    case OPSMITH_INVALID_ARGUMENT:
      return "This is a mistake of the code that called the driver: report it with what led to it.";
    default:  // a number that is none, or work that is pending where none may be
      return kDriversMistake;
  }
}

// See keep_failure(). The first one is kept: others follow from it.
struct KeptFailure {
  opsmith_status status = OPSMITH_OK;
  std::string text;
};
std::mutex kept_mutex;
KeptFailure kept_failure;

// The error that all calls on a lost device throw; empty: it is not lost.
std::array<std::string, kMostDevices> losses;
bool any_is_lost = false;

// With the lock held.
const std::string* loss_of(c10::DeviceIndex device) {
  return device >= 0 && !losses[device].empty() ? &losses[device] : nullptr;
}

void raise_loss(c10::DeviceIndex device) {
  std::string text;
  {
    const std::lock_guard lock(kept_mutex);
    const std::string* const loss = loss_of(device);
    if (loss == nullptr) {
      return;
    }
    text = *loss;
  }
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(here, OPSMITH_DEVICE_LOST, text);
}

// The device that is lost, where a call on `device` says that one is: another may take part in it.
c10::DeviceIndex lost_device(c10::DeviceIndex device) noexcept {
  const auto is_lost = [](c10::DeviceIndex asked) {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    return detail::loaded_driver->device_memory(asked, &free_bytes, &total_bytes) == OPSMITH_DEVICE_LOST;
  };
  if (is_lost(device)) {
    return device;
  }
  for (c10::DeviceIndex other = 0; other < device_count(); ++other) {
    if (is_lost(other)) {
      return other;
    }
  }
  return device;
}

opsmith_status (*drivers_stream_query)(opsmith_stream) = nullptr;

// Takes the place of the driver's once a device is lost: whoever asks whether the host may touch memory is to
// see that too, also of a driver that goes on. Costs nothing before.
opsmith_status stream_query_unless_lost(opsmith_stream stream) {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    const std::lock_guard lock(kept_mutex);
    if (loss_of(device) != nullptr && detail::id_of_stream(stream, device) >= 0) {
      return OPSMITH_DEVICE_LOST;
    }
  }
  return drivers_stream_query(stream);
}

// The first failure tells what happened.
void keep_loss(c10::DeviceIndex device, const std::string& text) {
  const std::lock_guard lock(kept_mutex);
  if (losses[device].empty()) {
    losses[device] = text;
  }
  if (!any_is_lost) {
    drivers_stream_query = table.stream_query;
    std::atomic_ref(table.stream_query).store(&stream_query_unless_lost);
  }
  any_is_lost = true;
  detail::failure_is_kept = true;
}

// A device tells of a failed kernel when it is next asked for something, whatever that is.
std::string where_to_look(c10::DeviceIndex device) {
  const char* const launched = launches_block() ? nullptr : launched_last(device);
  if (launched == nullptr) {
    return "";
  }
  return c10::str(
      " Where a kernel has failed, what was computed since may be wrong. The operator launched last is ",
      launched, "; OPSMITH_LAUNCH_BLOCKING=1 raises failures from the calls that cause them.");
}

std::string failure_text(const std::string& what_failed, c10::DeviceIndex device, const std::string& served,
                         const std::string& driver_says, opsmith_status status) {
  return c10::str(what_failed, " on ", c10::Device(c10::kPrivateUse1, device), served, ": ", driver_says,
                  " (", status_name(status), "). ", remedy(status),
                  status == OPSMITH_FAILED ? where_to_look(device) : "");
}

}  // namespace

constinit thread_local const Serving* Serving::innermost = nullptr;

std::string Serving::text() {
  if (innermost == nullptr) {
    return "";
  }
  const bool has_overload = *innermost->overload_ != '\0';
  return c10::str(" for ", innermost->name_, has_overload ? "." : "", innermost->overload_);
}

void keep_failure(opsmith_status status, c10::DeviceIndex device) noexcept {
  try {
    const std::string driver_says = last_error();
    const bool is_lost = status == OPSMITH_DEVICE_LOST;
    device = is_lost ? lost_device(device) : device;
    std::string text =
        failure_text("work that was queued before has failed", device, "", driver_says, status);
    is_lost ? keep_loss(device, text) : keep_failure(status, std::move(text));
  } catch (const std::exception&) {  // out of memory: then something else fails soon
  }
}

void keep_failure(opsmith_status status, std::string text) noexcept {
  const std::lock_guard lock(kept_mutex);
  if (kept_failure.status == OPSMITH_OK) {
    kept_failure = {status, std::move(text)};
    detail::failure_is_kept = true;
  }
}

namespace detail {

const opsmith_driver* loaded_driver = nullptr;

void throw_no_driver() {
  TORCH_CHECK(!has_forked, "Cannot re-initialize ", device_type_name(), " in forked subprocess. To use ",
              device_type_name(),
              " with multiprocessing, you must use the 'spawn' start method: "
              "torch.multiprocessing.set_start_method(\"spawn\")");
  TORCH_CHECK(false, "no driver is loaded for the ", device_type_name(),
              " device; call opsmith.load(\"<backend>\") first");
}

void throw_driver_failure(opsmith_status status, const char* action, c10::DeviceIndex device,
                          bool of_earlier_work) {
  const std::string driver_says = last_error();  // before another device is asked
  const bool is_lost = status == OPSMITH_DEVICE_LOST;
  device = is_lost ? lost_device(device) : device;
  std::string served = Serving::text();
  if (of_earlier_work && status == OPSMITH_FAILED && !opsmith::launches_block()) {
    served += ", since work that was launched earlier has failed";
  }
  const std::string text = failure_text(c10::str("could not ", action), device, served, driver_says, status);
  if (is_lost) {
    keep_loss(device, text);
  }
  raise_loss(device);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (status == OPSMITH_OUT_OF_MEMORY) {
    throw c10::OutOfMemoryError(here, text);
  }
  throw c10::AcceleratorError(here, status, text);
}

std::atomic<bool> failure_is_kept = false;

void raise_kept_failure(c10::DeviceIndex device) {
  raise_loss(device);
  KeptFailure failure;
  {
    const std::lock_guard lock(kept_mutex);
    failure = std::exchange(kept_failure, {});
    failure_is_kept = any_is_lost;
  }
  if (failure.status == OPSMITH_OK) {
    return;  // another device is lost, or another thread raises it
  }
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(here, failure.status, failure.text);
}

void set_driver(const opsmith_driver& driver, void* of_library) {
  table = driver;
  library = of_library;
  pthread_atfork(nullptr, nullptr, forget_driver_in_child);
  loaded_driver = &table;
}

void throw_null_result(const char* entry, c10::DeviceIndex device) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(
      here, OPSMITH_FAILED,
      c10::str("the driver \"", loaded_driver->name, "\" returned OPSMITH_OK and NULL from `", entry, "` on ",
               c10::Device(c10::kPrivateUse1, device), ". ", kDriversMistake));
}

}  // namespace detail

const char* status_name(opsmith_status status) {
  switch (status) {
    case OPSMITH_OK:
      return "OPSMITH_OK";
    case OPSMITH_NOT_READY:
      return "OPSMITH_NOT_READY";
    case OPSMITH_OUT_OF_MEMORY:
      return "OPSMITH_OUT_OF_MEMORY";
    case OPSMITH_INVALID_ARGUMENT:
      return "OPSMITH_INVALID_ARGUMENT";
    case OPSMITH_FAILED:
      return "OPSMITH_FAILED";
    case OPSMITH_DEVICE_LOST:
      return "OPSMITH_DEVICE_LOST";
  }
  return "an unknown status";
}

std::string last_error() {
  const char* const text = detail::loaded_driver != nullptr ? detail::loaded_driver->last_error() : "";
  return text != nullptr ? text : "the driver does not say why";
}

bool is_in_bad_fork() {
  return has_forked;
}

void* driver_symbol(const char* name) {
  return library == nullptr ? nullptr : dlsym(library, name);
}

}  // namespace opsmith
