// A discrete device for tests: its memory is out of the host's reach, and its streams are lazy. Work is
// queued, and done when somebody waits or asks for it, so that what relies on luck elsewhere fails here each
// time.
//
// CHIP_LIE=<name> makes it break the contract in one way. chip_fail() makes calls of an entry fail.
// CHIP_WITHOUT=<sets> leaves out optional entries: "events pinned host_function host_window ranges
// sharing graphs".
#include <opsmith_driver.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Clock = std::chrono::steady_clock;

struct Record {
  bool done = false;
  Clock::time_point time;
};

using Task = std::function<void()>;

// In the order in which it was queued, which has whatever a task waits for before it.
struct opsmith_graph_s {
  std::vector<Task> tasks;
};

// The recording of the streams that take part. The first one does not yet wait for those that are `open`.
struct Capture {
  opsmith_stream first = nullptr;
  opsmith_graph graph = nullptr;
  std::set<opsmith_stream> streams;
  std::set<opsmith_stream> open;
};

struct opsmith_event_s {
  int device = 0;
  opsmith_stream stream = nullptr;
  std::shared_ptr<Record> record;
  std::shared_ptr<Capture> capture;
};

struct opsmith_stream_s {
  int device = 0;
  int priority = 0;
  std::deque<Task> tasks;
  std::shared_ptr<Capture> capture;
  bool has_failed = false;
};

namespace {

constexpr int kDevices = 2;
constexpr size_t kMemory = size_t{256} << 20;
constexpr size_t kAlignment = 64;

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

bool lies(const char* name) {
  static const char* const lie = std::getenv("CHIP_LIE");
  return lie != nullptr && std::strcmp(lie, name) == 0;
}

// Where leaks go: a pointer that nobody reads.
char* volatile leaked;

thread_local std::string own_error;
std::string shared_error;

opsmith_status fail(opsmith_status status, std::string text) {
  own_error = shared_error = std::move(text);
  return status;
}

const char* last_error() {
  if (lies("no error text") || (lies("null error") && own_error.empty())) {
    return nullptr;
  }
  if (lies("two lines")) {
    return "something\nwent wrong";
  }
  return lies("empty error") ? "" : lies("shared error") ? shared_error.c_str() : own_error.c_str();
}

// ---- faults ----

struct Fault {
  std::string entry;
  int after = 0;
  int status = 0;
  bool stays = false;
} fault;
int calls_of_faulty_entry = 0;
std::map<std::string, int> calls;

// The status with which this call of `entry` is to fail.
opsmith_status injected(const char* entry) {
  const Lock lock(mutex);
  ++calls[entry];
  if (lies("crash") && std::strcmp(entry, "copy") == 0) {
    *reinterpret_cast<volatile int*>(8) = 1;
  }
  if (lies("exit") && std::strcmp(entry, "fill") == 0) {
    std::fprintf(stderr, "the firmware is missing\n");
    _exit(3);
  }
  if (fault.entry != entry || fault.status == 0) {
    return OPSMITH_OK;
  }
  const int call = calls_of_faulty_entry++;
  if (call < fault.after || (call > fault.after && !fault.stays)) {
    return OPSMITH_OK;
  }
  return fail(static_cast<opsmith_status>(fault.status), std::string("injected into ") + entry);
}

#define ENTRY(name)                                                         \
  const Lock lock(mutex);                                                   \
  if (const opsmith_status status = injected(name); status != OPSMITH_OK) { \
    return status;                                                          \
  }

// ---- memory ----

// A device has addresses for twice its memory, since some lies hand out too much, and as many for memory of
// other processes.
constexpr size_t kOwn = 2 * kMemory;

struct Device {
  int file = -1;
  char* addresses = nullptr;  // nobody may touch them
  char* bytes = nullptr;
  std::map<size_t, size_t> blocks;  // offset: size
  std::map<size_t, size_t> imports;
  size_t live = 0;
  opsmith_stream_s default_stream;
  bool is_full = false;
};

void show(Device& chip, size_t at, size_t bytes, int file, off_t offset) {
  const int flags = MAP_FIXED | MAP_NORESERVE | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(chip.bytes + at, bytes, PROT_READ | PROT_WRITE, flags, file, offset) == MAP_FAILED) {
    std::abort();
  }
}

Device* devices() {
  static Device* const made = [] {
    auto* const all = new Device[kDevices];
    for (int i = 0; i < kDevices; ++i) {
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      all[i].addresses = static_cast<char*>(mmap(nullptr, 2 * kOwn, PROT_NONE, flags, -1, 0));
      all[i].bytes = static_cast<char*>(mmap(nullptr, 2 * kOwn, PROT_READ | PROT_WRITE, flags, -1, 0));
      all[i].file = memfd_create("chip", MFD_CLOEXEC);
      if (ftruncate(all[i].file, kOwn) != 0) {
        std::abort();
      }
      show(all[i], 0, kOwn, all[i].file, 0);
      all[i].default_stream.device = i;
    }
    return all;
  }();
  return made;
}

bool exists(int device) {
  return device >= 0 && device < kDevices;
}

opsmith_status no_device(int device) {
  return fail(OPSMITH_INVALID_ARGUMENT, "there is no device " + std::to_string(device));
}

#define DEVICE(name)                            \
  ENTRY(name)                                   \
  if (lies("any ordinal") && !exists(device)) { \
    device = 0;                                 \
  }                                             \
  if (!exists(device)) {                        \
    return no_device(device);                   \
  }

opsmith_status device_count(int* count) {
  ENTRY("device_count")
  static int asked = 0;
  *count = lies("no devices") ? 0 : lies("count changes") && ++asked % 2 == 0 ? 1 : kDevices;
  return OPSMITH_OK;
}

opsmith_status device_properties(int device, opsmith_device_properties* properties) {
  DEVICE("device_properties")
  *properties = {};
  if (!lies("no name")) {
    std::snprintf(properties->name, sizeof properties->name, "chip");
  }
  std::snprintf(properties->architecture, sizeof properties->architecture, "tests");
  properties->total_memory = lies("no memory") ? 0 : kMemory;
  properties->alignment = lies("alignment of 48") ? 48 : kAlignment;
  properties->multiprocessors = 1;
  return OPSMITH_OK;
}

opsmith_status device_memory(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  DEVICE("device_memory")
  *total_bytes = kMemory;
  *free_bytes = kMemory - (lies("constant memory") ? 0 : std::min(kMemory, devices()[device].live));
  if (lies("more free than total")) {
    *free_bytes += kMemory;
  }
  return OPSMITH_OK;
}

opsmith_status allocate(int device, size_t bytes, void** pointer) {
  DEVICE("allocate")
  Device& chip = devices()[device];
  const size_t limit = lies("overcommit") ? 2 * kMemory : kMemory;
  if (bytes == 0) {
    return fail(OPSMITH_INVALID_ARGUMENT, "no bytes");
  }
  if (lies("NULL allocation")) {
    *pointer = nullptr;
    return OPSMITH_OK;
  }
  if (lies("too large is truncated") && bytes > kMemory) {
    bytes = 64;
  }
  size_t place = 0;
  for (const auto& [start, size] : chip.blocks) {
    if (start - place >= bytes) {
      break;
    }
    place = start + (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  const bool is_kept = lies("keeps half") && chip.live + bytes > kMemory / 2;
  if (bytes > limit || place > limit - bytes || chip.is_full || is_kept) {
    chip.is_full = lies("full for ever");
    return fail(lies("out of memory is a failure") ? OPSMITH_FAILED : OPSMITH_OUT_OF_MEMORY,
                std::to_string(bytes) + " bytes do not fit");
  }
  chip.blocks[place] = bytes;
  chip.live += bytes;
  *pointer = chip.addresses + place;
  if (lies("misaligned") && bytes > 64) {
    *pointer = chip.addresses + place + 4;
  }
  if (lies("overlap") && bytes == 1000) {
    *pointer = chip.addresses + place - 64;
  }
  if (lies("leak of allocations")) {
    leaked = new char[100];
  }
  return OPSMITH_OK;
}

opsmith_status release(int device, void* pointer) {
  DEVICE("release")
  Device& chip = devices()[device];
  if (lies("never used again")) {
    return OPSMITH_OK;
  }
  // Two of the lies handed out an address beside the start of the block.
  const size_t offset = static_cast<char*>(pointer) - chip.addresses;
  auto found = chip.blocks.find(offset + (lies("overlap") && chip.blocks.count(offset) == 0 ? 64 : 0));
  found = lies("misaligned") && offset % kAlignment != 0 ? chip.blocks.find(offset - 4) : found;
  if (found == chip.blocks.end()) {
    return fail(OPSMITH_INVALID_ARGUMENT, "no allocation starts there");
  }
  chip.live -= lies("memory stays gone") ? 0 : found->second;
  chip.blocks.erase(found);
  return OPSMITH_OK;
}

// Where the bytes of an address are.
char* bytes_at(const void* pointer, int device) {
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  if (device == OPSMITH_HOST) {
    return address;
  }
  Device& chip = devices()[device];
  size_t offset = address - chip.addresses;
  if (lies("aliased") && offset >= 10112) {
    offset -= 10112;
  }
  if (lies("offsets ignored")) {
    const auto found = chip.blocks.upper_bound(offset);
    if (found != chip.blocks.begin()) {
      offset = std::prev(found)->first;
    }
  }
  return chip.bytes + offset;
}

// ---- streams ----

void enqueue(opsmith_stream stream, Task task) {
  if (stream->capture == nullptr) {
    stream->tasks.push_back(std::move(task));
    return;
  }
  if (stream != stream->capture->first) {
    stream->capture->open.insert(stream);
  }
  if (lies("records nothing")) {
    stream->tasks.push_back(task);
  }
  stream->capture->graph->tasks.push_back(std::move(task));
}

#define NOT_CAPTURED(stream)                               \
  if ((stream)->capture != nullptr) {                      \
    return fail(OPSMITH_FAILED, "the stream is captured"); \
  }

void run_one(opsmith_stream stream) {
  const bool backwards = lies("unordered") || (lies("unordered when urgent") && stream->priority < 0);
  auto task = std::move(backwards ? stream->tasks.back() : stream->tasks.front());
  backwards ? stream->tasks.pop_back() : stream->tasks.pop_front();
  task();
}

void drain(opsmith_stream stream) {
  while (!stream->tasks.empty()) {
    run_one(stream);
  }
}

void drain_until(const std::shared_ptr<Record>& record, opsmith_stream stream) {
  while (!record->done && !stream->tasks.empty()) {
    run_one(stream);
  }
}

std::map<uintptr_t, size_t> pinned_blocks;

bool is_pinned(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto found = pinned_blocks.upper_bound(address);
  return found != pinned_blocks.begin() && address - std::prev(found)->first < std::prev(found)->second;
}

char bounce[2 << 20];  // of "one bounce buffer"

opsmith_status copy(void* destination, int destination_device, const void* source, int source_device,
                    size_t bytes, opsmith_stream stream) {
  std::unique_lock lock(mutex);
  if (const opsmith_status status = injected("copy"); status != OPSMITH_OK) {
    return status;
  }
  const bool to_host = destination_device == OPSMITH_HOST;
  const bool from_host = source_device == OPSMITH_HOST;
  for (const int device : {destination_device, source_device}) {
    if (device != OPSMITH_HOST && !exists(device)) {
      return no_device(device);
    }
  }
  if (lies("leak of copies")) {
    leaked = new char[100];
  }
  char* const to = bytes_at(destination, destination_device);
  const char* const from = bytes_at(source, source_device);
  if ((lies("short copies") && from_host) || (lies("short reads") && to_host)) {
    bytes -= bytes % 2;
  }
  if ((lies("wide copies") && from_host) || (lies("wide reads") && to_host)) {
    bytes += 8;
  }
  if ((lies("no copies within") && destination_device == source_device) ||
      (lies("no copies between") && !to_host && !from_host && destination_device != source_device) ||
      (lies("pinned is ignored") && from_host && is_pinned(source))) {
    return OPSMITH_OK;
  }
  const auto task = [=] { std::memmove(to, from, bytes); };
  const bool pageable = (to_host && !is_pinned(destination)) || (from_host && !is_pinned(source));
  if (pageable) {
    NOT_CAPTURED(stream)
  }
  if (pageable && !(lies("late reads") && from_host) && !(lies("late writes") && to_host)) {
    drain(stream);
    if (lies("one bounce buffer") && bytes <= sizeof bounce) {
      lock.unlock();
      std::memcpy(bounce, from, bytes);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      std::memcpy(to, bounce, bytes);
      return OPSMITH_OK;
    }
    task();
  } else {
    enqueue(stream, task);
  }
  return OPSMITH_OK;
}

opsmith_status fill(int device, void* destination, uint8_t value, size_t bytes, opsmith_stream stream) {
  DEVICE("fill")
  if (lies("status 77")) {
    return static_cast<opsmith_status>(77);
  }
  if (lies("not ready")) {
    return OPSMITH_NOT_READY;
  }
  bytes -= lies("short fills") ? bytes % 4 : 0;
  char* const to = bytes_at(destination, device);
  value = lies("fills with zero") ? 0 : value;
  enqueue(stream, [=] { std::memset(to, value, bytes); });
  return OPSMITH_OK;
}

opsmith_status default_stream(int device, opsmith_stream* stream) {
  DEVICE("default_stream")
  *stream = &devices()[device].default_stream;
  if (lies("NULL default stream")) {
    *stream = nullptr;
  }
  if (lies("many default streams")) {
    *stream = new opsmith_stream_s{device, 0, {}, nullptr};
  }
  return OPSMITH_OK;
}

pid_t first_thread;

opsmith_status stream_create(int device, int priority, opsmith_stream* stream) {
  DEVICE("stream_create")
  if (lies("NULL stream")) {
    *stream = nullptr;
    return OPSMITH_OK;
  }
  *stream = new opsmith_stream_s{device, priority, {}, nullptr};
  if (lies("leak of files")) {
    open("/dev/null", O_RDONLY);
  }
  first_thread = gettid();
  return OPSMITH_OK;
}

opsmith_status stream_destroy(opsmith_stream stream) {
  ENTRY("stream_destroy")
  if (lies("streams of one thread") && first_thread != gettid()) {
    return fail(OPSMITH_FAILED, "the stream is of another thread");
  }
  if (lies("destroyed with its work")) {
    stream->tasks.clear();
    return OPSMITH_OK;
  }
  drain(stream);
  if (!lies("leak of streams")) {
    delete stream;
  }
  return OPSMITH_OK;
}

// Of work that is done, once.
opsmith_status failure_of(opsmith_stream stream) {
  if (std::exchange(stream->has_failed, false) && !lies("forgets failures")) {
    return fail(OPSMITH_FAILED, "a kernel has failed");
  }
  return OPSMITH_OK;
}

opsmith_status stream_query(opsmith_stream stream) {
  ENTRY("stream_query")
  if (lies("never idle") || lies("always idle")) {
    return lies("never idle") ? OPSMITH_NOT_READY : OPSMITH_OK;
  }
  if (stream->capture != nullptr) {
    return OPSMITH_NOT_READY;
  }
  if (!stream->tasks.empty()) {
    run_one(stream);
    return OPSMITH_NOT_READY;
  }
  return failure_of(stream);
}

opsmith_status stream_synchronize(opsmith_stream stream) {
  ENTRY("stream_synchronize")
  while (lies("hang")) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (!lies("waits while captured")) {
    NOT_CAPTURED(stream)
  }
  if (lies("does not wait") && stream->tasks.size() > 16) {
    return OPSMITH_OK;
  }
  drain(stream);
  return failure_of(stream);
}

opsmith_status stream_host_function(opsmith_stream stream, void (*function)(void*), void* argument) {
  ENTRY("stream_host_function")
  if (lies("host functions at once")) {
    function(argument);
    return OPSMITH_OK;
  }
  if (lies("no host functions")) {
    return OPSMITH_OK;
  }
  enqueue(stream, [=] { function(argument); });
  if (lies("host functions twice")) {
    enqueue(stream, [=] { function(argument); });
  }
  return OPSMITH_OK;
}

// ---- events ----

opsmith_status event_create(int device, int /*timing*/, opsmith_event* event) {
  DEVICE("event_create")
  *event = lies("NULL event") ? nullptr : new opsmith_event_s{device, nullptr, nullptr, nullptr};
  return OPSMITH_OK;
}

opsmith_status event_destroy(opsmith_event event) {
  ENTRY("event_destroy")
  if (lies("destroyed events are forgotten") && event->record != nullptr) {
    event->record->done = true;
  }
  if (!lies("leak of events")) {
    delete event;
  }
  return OPSMITH_OK;
}

opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  ENTRY("event_record")
  if (lies("recorded once") && event->record != nullptr) {
    return OPSMITH_OK;
  }
  auto record = std::make_shared<Record>();
  event->record = record;
  event->stream = stream;
  event->capture = stream->capture;
  if (lies("events at once")) {
    record->done = true;
  }
  enqueue(stream, [record] {
    record->done = true;
    record->time = Clock::now();
  });
  if (lies("host time of events")) {
    record->time = Clock::now();
  }
  return OPSMITH_OK;
}

opsmith_status event_query(opsmith_event event) {
  ENTRY("event_query")
  if (event->record == nullptr) {
    return lies("not recorded is pending") ? OPSMITH_NOT_READY : OPSMITH_OK;
  }
  if (!event->record->done && !event->stream->tasks.empty()) {
    run_one(event->stream);
  }
  return event->record->done ? OPSMITH_OK : OPSMITH_NOT_READY;
}

opsmith_status event_synchronize(opsmith_event event) {
  ENTRY("event_synchronize")
  if (event->record != nullptr) {
    drain_until(event->record, event->stream);
  }
  return OPSMITH_OK;
}

opsmith_status event_elapsed(opsmith_event start, opsmith_event end, double* milliseconds) {
  ENTRY("event_elapsed")
  if (start->record == nullptr || end->record == nullptr || !start->record->done || !end->record->done) {
    return fail(OPSMITH_INVALID_ARGUMENT, "an event has not happened");
  }
  *milliseconds = std::chrono::duration<double, std::milli>(end->record->time - start->record->time).count();
  *milliseconds *= lies("negative time") ? -1 : lies("seconds") ? 0.001 : lies("microseconds") ? 1000 : 1;
  return OPSMITH_OK;
}

opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  ENTRY("stream_wait_event")
  if (event->capture != nullptr && event->capture->graph != nullptr) {
    if (stream == event->capture->first) {
      event->capture->open.erase(event->stream);
    } else if (!lies("records one stream")) {
      stream->capture = event->capture;
      stream->capture->streams.insert(stream);
      stream->capture->open.insert(stream);
    }
    return OPSMITH_OK;
  }
  if (event->record != nullptr && !lies("waits for nothing")) {
    enqueue(stream, [record = event->record, other = event->stream, stream] {
      if (other != stream) {
        drain_until(record, other);
      }
    });
  }
  return OPSMITH_OK;
}

// ---- the host's memory ----

opsmith_status pinned_allocate(size_t bytes, void** pointer) {
  ENTRY("pinned_allocate")
  *pointer = lies("NULL pinned memory") ? nullptr : std::malloc(bytes);
  pinned_blocks[reinterpret_cast<uintptr_t>(*pointer)] = bytes;
  return OPSMITH_OK;
}

opsmith_status pinned_release(void* pointer) {
  ENTRY("pinned_release")
  pinned_blocks.erase(reinterpret_cast<uintptr_t>(pointer));
  if (!lies("leak of pinned memory")) {
    std::free(pointer);
  }
  return OPSMITH_OK;
}

int pinned_contains(const void* pointer) {
  const Lock lock(mutex);
  return lies("pinned everywhere") || (!lies("pinned nowhere") && is_pinned(pointer));
}

void* host_window(const void* pointer) {
  const Lock lock(mutex);
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  for (int i = 0; i < kDevices; ++i) {
    const ptrdiff_t offset = address - devices()[i].addresses;
    if (offset >= 0 && offset < static_cast<ptrdiff_t>(2 * kOwn)) {
      if (lies("no window")) {
        return nullptr;
      }
      const ptrdiff_t jump = lies("window in pages") ? offset / 4096 * 64 : 0;
      return devices()[i].bytes + offset + jump + (lies("window elsewhere") ? kMemory / 2 : 0);
    }
  }
  return lies("window of everything") ? address + 64 : nullptr;
}

thread_local int open_ranges = 0;

opsmith_status range_push(const char* text) {
  if (text == nullptr || (lies("flat ranges") && open_ranges > 0)) {
    return fail(OPSMITH_INVALID_ARGUMENT, "a range is open already");
  }
  ++open_ranges;
  return OPSMITH_OK;
}

opsmith_status range_pop() {
  if (open_ranges == 0) {
    return fail(OPSMITH_INVALID_ARGUMENT, "no range is open in this thread");
  }
  --open_ranges;
  return OPSMITH_OK;
}

// ---- memory shared with other processes: the pages that it lies in, of the device's file ----

constexpr size_t kPage = 4096;

struct Place {
  size_t offset;
  size_t bytes;
};

opsmith_status memory_export(int device, void* pointer, opsmith_memory_handle* handle) {
  DEVICE("memory_export")
  const Device& chip = devices()[device];
  const auto found = chip.blocks.find(static_cast<char*>(pointer) - chip.addresses);
  if (found == chip.blocks.end()) {
    return fail(OPSMITH_INVALID_ARGUMENT, "no allocation starts there");
  }
  const Place place{found->first, found->second};
  std::memcpy(handle->bytes, &place, sizeof place);
  handle->file = fcntl(chip.file, F_DUPFD_CLOEXEC, 0);
  return OPSMITH_OK;
}

opsmith_status memory_import(int device, const opsmith_memory_handle* handle, void** pointer) {
  DEVICE("memory_import")
  Device& chip = devices()[device];
  Place place{};
  std::memcpy(&place, handle->bytes, sizeof place);
  const size_t first = place.offset / kPage * kPage;
  const size_t bytes = (place.offset + place.bytes + kPage - 1) / kPage * kPage - first;
  if (lies("imports once") && !chip.imports.empty()) {
    return fail(OPSMITH_FAILED, "it is imported");
  }
  size_t at = kOwn;
  for (const auto& [start, size] : chip.imports) {
    if (start - at >= bytes) {
      break;
    }
    at = start + size;
  }
  if (bytes > 2 * kOwn - at) {
    return fail(OPSMITH_FAILED, "no addresses are left");
  }
  if (lies("imports copies")) {
    show(chip, at, bytes, -1, 0);
    [[maybe_unused]] const ssize_t read = pread(handle->file, chip.bytes + at, bytes, first);
  } else {
    show(chip, at, bytes, handle->file, first);
  }
  if (lies("imports take memory")) {
    chip.live += bytes;
  }
  if (lies("imports move memory")) {
    fallocate(handle->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, bytes);
  }
  chip.imports[at] = bytes;
  *pointer = lies("NULL import") ? nullptr : chip.addresses + at + (place.offset - first);
  return OPSMITH_OK;
}

opsmith_status memory_unimport(int device, void* pointer) {
  DEVICE("memory_unimport")
  Device& chip = devices()[device];
  const size_t offset = static_cast<char*>(pointer) - chip.addresses;
  const auto found = chip.imports.find(offset / kPage * kPage);
  if (found == chip.imports.end()) {
    return fail(OPSMITH_INVALID_ARGUMENT, "nothing is imported there");
  }
  show(chip, found->first, found->second, -1, 0);
  chip.imports.erase(found);
  return OPSMITH_OK;
}

// ---- graphs ----

opsmith_status capture_begin(opsmith_stream stream) {
  ENTRY("capture_begin")
  NOT_CAPTURED(stream)
  stream->capture = std::make_shared<Capture>();
  *stream->capture = {stream, new opsmith_graph_s, {stream}, {}};
  return OPSMITH_OK;
}

opsmith_status capture_end(opsmith_stream stream, opsmith_graph* graph) {
  ENTRY("capture_end")
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->first != stream) {
    return fail(OPSMITH_INVALID_ARGUMENT, "no capture began on the stream");
  }
  for (const opsmith_stream each : capture->streams) {
    each->capture = nullptr;
  }
  *graph = std::exchange(capture->graph, nullptr);
  if (lies("NULL graph")) {
    *graph = nullptr;
  }
  if (!capture->open.empty()) {
    delete std::exchange(*graph, nullptr);
    return fail(OPSMITH_FAILED, "the stream does not wait for others that are captured");
  }
  return OPSMITH_OK;
}

opsmith_status stream_is_captured(opsmith_stream stream, int* is_captured) {
  ENTRY("stream_is_captured")
  *is_captured = stream->capture != nullptr;
  return OPSMITH_OK;
}

opsmith_status graph_launch(opsmith_graph graph, opsmith_stream stream) {
  ENTRY("graph_launch")
  for (const Task& task : graph->tasks) {
    enqueue(stream, task);
  }
  if (lies("runs graphs once")) {
    graph->tasks.clear();
  }
  return OPSMITH_OK;
}

opsmith_status graph_destroy(opsmith_graph graph) {
  ENTRY("graph_destroy")
  delete graph;
  return OPSMITH_OK;
}

opsmith_status graph_dump(opsmith_graph graph, const char* path) {
  ENTRY("graph_dump")
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    return fail(OPSMITH_FAILED, std::string(path) + " cannot be written");
  }
  std::fprintf(file, "digraph { tasks [label=\"%zu\"] }\n", graph->tasks.size());
  std::fclose(file);
  return OPSMITH_OK;
}

opsmith_driver made_table() {
  opsmith_driver table{};
  table.abi_version = lies("version 9") ? 9 : OPSMITH_DRIVER_ABI_VERSION;
  table.struct_size = sizeof(opsmith_driver) - (lies("short table") ? 8 : 0);
  table.name = "chip";
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_memory = device_memory;
  table.allocate = allocate;
  table.release = release;
  table.copy = lies("no copy") ? nullptr : copy;
  table.fill = fill;
  table.default_stream = default_stream;
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_query = stream_query;
  table.stream_synchronize = stream_synchronize;
  const char* const left_out = std::getenv("CHIP_WITHOUT");
  const auto has = [&](const char* set) {
    return left_out == nullptr || std::strstr(left_out, set) == nullptr;
  };
  if (has("host_function")) {
    table.stream_host_function = stream_host_function;
  }
  if (has("events")) {
    table.event_create = event_create;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_synchronize = event_synchronize;
    table.event_elapsed = lies("half the events") ? nullptr : event_elapsed;
    table.stream_wait_event = stream_wait_event;
  }
  if (has("pinned")) {
    table.pinned_allocate = pinned_allocate;
    table.pinned_release = pinned_release;
    table.pinned_contains = lies("half of pinned memory") ? nullptr : pinned_contains;
  }
  if (has("host_window")) {
    table.host_window = host_window;
  }
  if (has("ranges")) {
    table.range_push = range_push;
    table.range_pop = lies("half of ranges") ? nullptr : range_pop;
  }
  if (has("sharing")) {
    table.memory_export = memory_export;
    table.memory_import = memory_import;
    table.memory_unimport = lies("half of sharing") ? nullptr : memory_unimport;
  }
  if (has("graphs")) {
    table.capture_begin = capture_begin;
    table.capture_end = capture_end;
    table.stream_is_captured = stream_is_captured;
    table.graph_launch = graph_launch;
    table.graph_destroy = graph_destroy;
    table.graph_dump = lies("half of graphs") ? nullptr : graph_dump;
  }
  return table;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const opsmith_driver* opsmith_get_driver() {
  static const opsmith_driver table = made_table();
  return lies("NULL table") ? nullptr : &table;
}

EXPORTED opsmith_status opsmith_launch_failing_work(opsmith_stream stream) {
  const Lock lock(mutex);
  stream->tasks.push_back([stream] { stream->has_failed = true; });
  return OPSMITH_OK;
}

// The call of `entry` after `after` others returns `status`; with `stays` all later ones too. Clears with "".
EXPORTED void chip_fail(const char* entry, int after, int status, int stays) {
  const Lock lock(mutex);
  fault = {entry, after, status, stays != 0};
  calls_of_faulty_entry = 0;
}

EXPORTED int chip_calls(const char* entry) {
  const Lock lock(mutex);
  return calls[entry];
}
