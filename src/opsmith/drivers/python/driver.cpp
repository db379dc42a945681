// The table of a driver that is written in Python. The entries are ctypes' callbacks, which
// opsmith/driver/served.py hands over; this file stands between them and the caller, who knows nothing of
// Python:
//   - when the interpreter ends, calls stop reaching it, since a callback would take a lock that is gone;
//   - errors are texts of the calling thread, which a callback sets;
//   - a driver without streams has one for each device that is always idle, which costs no call of Python.
#include <opsmith_driver.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

struct opsmith_stream_s {
  int device;
};

namespace {

constexpr int kMostDevices = 64;

opsmith_driver python;  // the callbacks; what the class does not override is NULL
opsmith_driver table;   // what opsmith is given
std::atomic<bool> is_open{false};
std::atomic<int> running{0};
opsmith_stream_s idle_streams[kMostDevices];

thread_local char error[1024];

// Counts a call that is on its way to Python, unless Python has ended.
class Call {
 public:
  // First counted, then asked: python_driver_close() does it the other way round, so one of them sees the
  // other.
  Call() {
    running.fetch_add(1);
    is_allowed_ = is_open.load();
    if (!is_allowed_) {
      std::snprintf(error, sizeof error, "the driver is written in Python, and Python has ended");
    }
  }
  ~Call() { running.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool is_allowed() const { return is_allowed_; }

 private:
  bool is_allowed_;
};

// The entry that forwards to the callback `Entry` of `python`.
template <auto Entry>
struct Forward;

template <class... Arguments, opsmith_status (*opsmith_driver::*Entry)(Arguments...)>
struct Forward<Entry> {
  static opsmith_status call(Arguments... arguments) {
    const Call call;
    return call.is_allowed() ? (python.*Entry)(arguments...) : OPSMITH_DEVICE_LOST;
  }
};

// Sets the entry that forwards to `Entry`, if the class has it.
template <auto Entry>
void forward() {
  table.*Entry = python.*Entry != nullptr ? &Forward<Entry>::call : nullptr;
}

template <auto... Entries>
void forward_all() {
  (forward<Entries>(), ...);
}

const char* last_error() {
  return error;
}

int pinned_contains(const void* pointer) {
  const Call call;
  return call.is_allowed() ? python.pinned_contains(pointer) : 0;
}

void* host_window(const void* pointer) {
  const Call call;
  return call.is_allowed() ? python.host_window(pointer) : nullptr;
}

// ---- for drivers without streams ----

opsmith_status idle_stream(int device, opsmith_stream* stream) {
  int count = 0;
  const opsmith_status status = table.device_count(&count);
  if (status != OPSMITH_OK) {
    return status;
  }
  if (device < 0 || device >= count || device >= kMostDevices) {
    std::snprintf(error, sizeof error, "there is no device %d; there are %d", device, count);
    return OPSMITH_INVALID_ARGUMENT;
  }
  *stream = &idle_streams[device];
  return OPSMITH_OK;
}

opsmith_status idle_stream_create(int device, int /*priority*/, opsmith_stream* stream) {
  return idle_stream(device, stream);
}

opsmith_status idle_stream_done(opsmith_stream /*stream*/) {
  return OPSMITH_OK;
}

}  // namespace

#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default")))

OPSMITH_EXPORTED const opsmith_driver* opsmith_get_driver() {
  return table.abi_version != 0 ? &table : nullptr;
}

// Takes over the callbacks, once. They live as long as the process.
OPSMITH_EXPORTED void opsmith_python_driver_open(const opsmith_driver* callbacks) {
  using T = opsmith_driver;
  python = *callbacks;
  table.name = python.name;
  table.last_error = last_error;
  forward_all<&T::device_count, &T::device_properties, &T::device_memory, &T::allocate, &T::release, &T::copy,
              &T::fill, &T::default_stream, &T::stream_create, &T::stream_destroy, &T::stream_query,
              &T::stream_synchronize, &T::stream_host_function, &T::event_create, &T::event_destroy,
              &T::event_record, &T::event_query, &T::event_synchronize, &T::event_elapsed,
              &T::stream_wait_event, &T::pinned_allocate, &T::pinned_release, &T::range_push, &T::range_pop,
              &T::memory_export, &T::memory_import, &T::memory_unimport, &T::capture_begin, &T::capture_end,
              &T::stream_is_captured, &T::graph_launch, &T::graph_destroy, &T::graph_dump>();
  table.pinned_contains = python.pinned_contains != nullptr ? pinned_contains : nullptr;
  table.host_window = python.host_window != nullptr ? host_window : nullptr;
  if (python.stream_create == nullptr) {
    table.default_stream = idle_stream;
    table.stream_create = idle_stream_create;
    table.stream_destroy = table.stream_query = table.stream_synchronize = idle_stream_done;
  }
  table.struct_size = sizeof(opsmith_driver);
  table.abi_version = OPSMITH_DRIVER_ABI_VERSION;
  is_open = true;
}

// Keeps later calls from Python, and waits some seconds for those that are there. Not to be called with the
// interpreter's lock, which they need.
OPSMITH_EXPORTED void opsmith_python_driver_close() {
  is_open = false;
  for (int i = 0; i < 5000 && running.load() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Sets the error of the callback that runs in this thread: one line.
OPSMITH_EXPORTED void opsmith_python_driver_set_error(const char* text) {
  std::snprintf(error, sizeof error, "%s", text);
}
