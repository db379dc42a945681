// CUDA's driver API as far as cuda_driver calls it, on the host: two devices of different kinds whose
// addresses the host cannot use, streams that are threads, kernels that libnvrtc.cpp compiled. What `check
// --dry-run` runs against; no more like a GPU than that.
//
// OPSMITH_STAND_IN_DEVICES: how many, 0 to 2. OPSMITH_STAND_IN_DRIVER: the CUDA of the driver, as 13000.
// OPSMITH_STAND_IN_TAKEN: the bytes of each device that another process is said to hold.
#include "../../../src/opsmith/drivers/cuda_driver/api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernel.h"

using namespace cuda;

namespace {

constexpr size_t kGrain = 512;
constexpr unsigned kMostThreads = 1024;
constexpr int kGreatestPriority = -5;

struct Kind {
  const char* name;
  size_t memory;
  int multiprocessors;  // a kernel takes one, whole
  int major;
  int minor;
};
constexpr std::array<Kind, 2> kKinds{{{"a stand-in for a GPU, on the host", size_t{4} << 30, 2, 9, 0},
                                      {"an older stand-in for a GPU", size_t{2} << 30, 1, 8, 6}}};

long setting(const char* name, long otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atol(value) : otherwise;
}

// ---- memory ----

// One file, seen twice: where the host may not touch it, which is where its device addresses are, and where
// it may.
struct Region {
  uintptr_t device;
  char* host;
  size_t size;
};

Region map_file(int file, size_t size) {
  void* const device = mmap(nullptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* const host = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (device == MAP_FAILED || host == MAP_FAILED) {
    std::perror("the stand-in of libcuda cannot map memory");
    std::abort();
  }
  return {reinterpret_cast<uintptr_t>(device), static_cast<char*>(host), size};
}

// The multiprocessors, which go to the most urgent kernel that waits, of these to the one that came first.
class Turns {
 public:
  explicit Turns(int free) : free_(free) {}
  void take(int priority) {
    std::unique_lock lock(mutex_);
    const std::pair mine(priority, ++last_);
    waiting_.insert(mine);
    changed_.wait(lock, [&] { return free_ > 0 && *waiting_.begin() == mine; });
    waiting_.erase(mine);
    --free_;
    changed_.notify_all();
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    ++free_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<int, long>> waiting_;
  long last_ = 0;
  int free_;
};

// A device, with its primary context.
struct Device {
  const int ordinal;
  const Kind kind;
  Turns turns;
  std::atomic<CUresult> fault = kSuccess;  // of a kernel: what every call says from then on
  std::mutex mutex;
  int file = memfd_create("device", MFD_CLOEXEC);
  std::vector<Region> regions;  // the first is the device's own, the others another process's
  std::map<size_t, size_t> free_blocks;
  std::map<uintptr_t, size_t> allocations;
  size_t used;

  explicit Device(int ordinal)
      : ordinal(ordinal),
        kind(kKinds[static_cast<size_t>(ordinal)]),
        turns(kind.multiprocessors),
        used(static_cast<size_t>(setting("OPSMITH_STAND_IN_TAKEN", 0))) {
    if (ftruncate(file, static_cast<off_t>(kind.memory)) != 0) {
      std::abort();
    }
    regions.push_back(map_file(file, kind.memory));
    free_blocks[0] = kind.memory - used;
  }

  // Where the host finds an address of the device; null for any other address.
  void* host_view(uintptr_t address) {
    const std::lock_guard lock(mutex);
    for (const Region& region : regions) {
      if (address - region.device < region.size) {
        return region.host + (address - region.device);
      }
    }
    return nullptr;
  }
};

int device_count() {
  return static_cast<int>(std::min<long>(setting("OPSMITH_STAND_IN_DEVICES", 2), kKinds.size()));
}

Device& device_at(int ordinal) {
  static auto* const made = [] {
    auto* const all = new std::deque<Device>;
    for (int i = 0; i < device_count(); ++i) {
      all->emplace_back(i);
    }
    return all;
  }();
  return (*made)[static_cast<size_t>(ordinal)];
}

thread_local Device* current = nullptr;

// Of a kernel's argument. An address that the device cannot use stays one that the host cannot use.
void* host_view_or_itself(void* pointer) {
  void* const found = current->host_view(reinterpret_cast<uintptr_t>(pointer));
  return found != nullptr ? found : pointer;
}

struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, size_t> blocks;
};

Pinned& pinned() {
  static auto* const made = new Pinned;
  return *made;
}

bool is_pinned(uintptr_t address) {
  const std::lock_guard lock(pinned().mutex);
  const auto& blocks = pinned().blocks;
  const auto after = blocks.upper_bound(address);
  return after != blocks.begin() && address - std::prev(after)->first < std::prev(after)->second;
}

// ---- streams and events ----

// The work that a stream is given. Other threads wait for the bookkeeping, which is done in a context with a
// fault too.
struct Job {
  enum What { kWork, kKernel, kBookkeeping } what;
  std::function<void()> run;
};

// A kernel that touches memory that is none leaves the fault with its device, and its thread goes on here.
thread_local sigjmp_buf* behind_kernel = nullptr;
struct sigaction before[2];

void on_bad_address(int signal, siginfo_t*, void*) {
  if (behind_kernel != nullptr) {
    siglongjmp(*behind_kernel, 1);
  }
  sigaction(signal, &before[signal == SIGBUS ? 1 : 0], nullptr);  // and the instruction runs again
}

void catch_bad_addresses() {
  struct sigaction caught{};
  caught.sa_sigaction = on_bad_address;
  caught.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &caught, &before[0]);
  sigaction(SIGBUS, &caught, &before[1]);
}

void run(const Job& job, Device& device, int priority) {
  if (job.what == Job::kBookkeeping) {
    return job.run();
  }
  if (job.what == Job::kWork) {
    return device.fault == kSuccess ? job.run() : void();
  }
  device.turns.take(priority);
  sigjmp_buf behind;
  behind_kernel = &behind;
  if (device.fault == kSuccess) {
    if (sigsetjmp(behind, 1) == 0) {
      job.run();
    } else {
      device.fault = kIllegalAddress;
    }
  }
  behind_kernel = nullptr;
  device.turns.give_back();
}

// The jobs that captured streams were given.
struct Capture {
  std::vector<Job> jobs;
  std::vector<class Stream*> streams;
};
using SharedCapture = std::shared_ptr<Capture>;

class Stream {
 public:
  Stream(Device& device, int priority) : device(device), priority_(priority) {
    std::thread([this] { work(); }).detach();
  }

  // Ends, and is no more, when what is queued is done.
  void destroy() { queue(nullptr, Job::kBookkeeping); }
  Device& device;
  std::shared_ptr<Capture> capture;  // of one thread at a time

  void queue(std::function<void()> work, Job::What what = Job::kWork) {
    if (capture != nullptr) {
      capture->jobs.push_back({what, std::move(work)});
      return;
    }
    const std::lock_guard lock(mutex_);
    jobs_.push_back({what, std::move(work)});
    changed_.notify_all();
  }
  void launch(const std::shared_ptr<Capture>& graph) {
    for (const Job& job : graph->jobs) {
      queue(job.run, job.what);
    }
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return jobs_.empty();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !jobs_.empty(); });
      const Job job = jobs_.front();
      lock.unlock();
      if (!job.run) {
        delete this;
        return;
      }
      run(job, device, priority_);
      lock.lock();
      jobs_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const int priority_;
  std::deque<Job> jobs_;
};

struct Moments {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t done = 0;
  std::chrono::steady_clock::time_point at;

  void wait(uint64_t which) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= which; });
  }
};

struct Event {
  Device& device;
  std::shared_ptr<Moments> moments = std::make_shared<Moments>();
  std::shared_ptr<Capture> capture;  // in which it was recorded
};

Stream& of(CUstream stream) {
  static std::array<std::atomic<Stream*>, kKinds.size()> legacy;
  if (stream != nullptr) {
    return *reinterpret_cast<Stream*>(stream);
  }
  std::atomic<Stream*>& mine = legacy[static_cast<size_t>(current->ordinal)];
  if (mine == nullptr) {
    mine = new Stream(*current, 0);
  }
  return *mine;
}

std::shared_ptr<Moments> of(CUevent event) {
  return reinterpret_cast<Event*>(event)->moments;
}

struct Module {
  Device& device;
  void* library;
};

struct Function {
  Device& device;
  void (*launch)(const dim3*, const dim3*, void**, stand_in::ToHost, std::function<void()>*);
};

constexpr CUresult kInvalidContext = 201;
constexpr CUresult kInvalidHandle = 400;
constexpr CUresult kNotFound = 500;
constexpr CUresult kCaptureUnsupported = 900;
constexpr CUresult kCaptureIsolation = 905;
constexpr CUresult kCapturedEvent = 907;

}  // namespace

#define ENTRY extern "C" CUresult
#define NEED(condition)   \
  if (!(condition)) {     \
    return kInvalidValue; \
  }
#define NEED_CONTEXT                \
  if (current == nullptr) {         \
    return kInvalidContext;         \
  }                                 \
  if (current->fault != kSuccess) { \
    return current->fault;          \
  }
// Work goes to a stream of the context that is current.
#define NEED_OWN(stream)               \
  NEED_CONTEXT                         \
  if (&of(stream).device != current) { \
    return kInvalidHandle;             \
  }

// ---- devices ----

ENTRY cuInit(unsigned) {
  catch_bad_addresses();
  return device_count() == 0 ? kNoDevice : kSuccess;
}
ENTRY cuDriverGetVersion(int* version) {
  return *version = static_cast<int>(setting("OPSMITH_STAND_IN_DRIVER", 13000)), kSuccess;
}

// As NVIDIA's driver words them.
struct Words {
  const char* name;
  const char* text;
};
const std::map<CUresult, Words> kWords{
    {kSuccess, {"CUDA_SUCCESS", "no error"}},
    {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {kNoBinaryForGpu,
     {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {kUnsupportedPtxVersion,
     {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {kInvalidHandle, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kNotReady, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
};
ENTRY cuGetErrorName(CUresult error, const char** name) {
  NEED(kWords.contains(error))
  return *name = kWords.at(error).name, kSuccess;
}
ENTRY cuGetErrorString(CUresult error, const char** text) {
  NEED(kWords.contains(error))
  return *text = kWords.at(error).text, kSuccess;
}
ENTRY cuDeviceGetCount(int* count) {
  return *count = device_count(), kSuccess;
}
ENTRY cuDeviceGet(CUdevice* device, int ordinal) {
  NEED(ordinal >= 0 && ordinal < device_count())
  return *device = ordinal, kSuccess;
}
ENTRY cuDeviceGetName(char* name, int size, CUdevice device) {
  std::snprintf(name, static_cast<size_t>(size), "%s", device_at(device).kind.name);
  return kSuccess;
}
ENTRY cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return *bytes = device_at(device).kind.memory, kSuccess;
}
ENTRY cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  const Kind& kind = device_at(device).kind;
  const std::map<int, int> values{{kMaxThreadsPerBlock, kMostThreads},
                                  {kMaxSharedMemory, 48 << 10},
                                  {kMultiprocessors, kind.multiprocessors},
                                  {kComputeMajor, kind.major},
                                  {kComputeMinor, kind.minor}};
  const auto found = values.find(attribute);
  NEED(found != values.end())
  return *value = found->second, kSuccess;
}
ENTRY cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return *context = reinterpret_cast<CUcontext>(&device_at(device)), kSuccess;
}
ENTRY cuCtxGetCurrent(CUcontext* context) {
  return *context = reinterpret_cast<CUcontext>(current), kSuccess;
}
ENTRY cuCtxSetCurrent(CUcontext context) {
  return current = reinterpret_cast<Device*>(context), kSuccess;
}

ENTRY cuCtxGetDevice(CUdevice* device) {
  NEED_CONTEXT
  return *device = current->ordinal, kSuccess;
}

// ---- memory ----

ENTRY cuMemGetInfo_v2(size_t* available, size_t* total) {
  NEED_CONTEXT
  const std::lock_guard lock(current->mutex);
  *available = current->kind.memory - current->used;
  return *total = current->kind.memory, kSuccess;
}

ENTRY cuMemAlloc_v2(CUdeviceptr* made, size_t bytes) {
  NEED_CONTEXT
  NEED(bytes != 0)
  if (bytes > current->kind.memory) {
    return kOutOfMemory;
  }
  const size_t size = (bytes + kGrain - 1) / kGrain * kGrain;
  Device& all = *current;
  const std::lock_guard lock(all.mutex);
  for (const auto [start, length] : all.free_blocks) {
    if (length >= size) {
      all.free_blocks.erase(start);
      if (length > size) {
        all.free_blocks[start + size] = length - size;
      }
      all.allocations[all.regions[0].device + start] = size;
      all.used += size;
      return *made = all.regions[0].device + start, kSuccess;
    }
  }
  return kOutOfMemory;
}

ENTRY cuMemFree_v2(CUdeviceptr address) {
  NEED_CONTEXT
  Device& all = *current;
  const std::lock_guard lock(all.mutex);
  const auto found = all.allocations.find(address);
  NEED(found != all.allocations.end())
  size_t start = address - all.regions[0].device;
  size_t size = found->second;
  all.allocations.erase(found);
  all.used -= size;
  auto after = all.free_blocks.lower_bound(start);
  if (after != all.free_blocks.end() && after->first == start + size) {
    size += after->second;
    after = all.free_blocks.erase(after);
  }
  if (after != all.free_blocks.begin() && std::prev(after)->first + std::prev(after)->second == start) {
    std::prev(after)->second += size;
  } else {
    all.free_blocks[start] = size;
  }
  return kSuccess;
}

ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  NEED_OWN(stream)
  void* const target = current->host_view(to);
  NEED(target != nullptr)
  if (is_pinned(reinterpret_cast<uintptr_t>(from))) {
    of(stream).queue([=] { std::memcpy(target, from, bytes); });
  } else {
    const auto* const start = static_cast<const char*>(from);
    of(stream).queue(
        [=, staged = std::vector<char>(start, start + bytes)] { std::memcpy(target, staged.data(), bytes); });
  }
  return kSuccess;
}

ENTRY cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  NEED_OWN(stream)
  const void* const source = current->host_view(from);
  NEED(source != nullptr)
  of(stream).queue([=] { std::memcpy(to, source, bytes); });
  if (!is_pinned(reinterpret_cast<uintptr_t>(to))) {
    of(stream).synchronize();
  }
  return current->fault;
}

ENTRY cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                        size_t bytes, CUstream stream) {
  NEED_OWN(stream)
  void* const target = reinterpret_cast<Device*>(to_context)->host_view(to);
  const void* const source = reinterpret_cast<Device*>(from_context)->host_view(from);
  NEED(target != nullptr && source != nullptr)
  of(stream).queue([=] { std::memmove(target, source, bytes); });
  return kSuccess;
}

ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const auto here = reinterpret_cast<CUcontext>(current);
  return cuMemcpyPeerAsync(to, here, from, here, bytes, stream);
}

ENTRY cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  NEED_OWN(stream)
  void* const target = current->host_view(to);
  NEED(target != nullptr)
  of(stream).queue([=] { std::memset(target, value, bytes); });
  return kSuccess;
}

ENTRY cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  NEED_CONTEXT
  NEED(bytes != 0)
  *pointer = std::aligned_alloc(kGrain, (bytes + kGrain - 1) / kGrain * kGrain);
  if (*pointer == nullptr) {
    return kOutOfMemory;
  }
  const std::lock_guard lock(pinned().mutex);
  return pinned().blocks[reinterpret_cast<uintptr_t>(*pointer)] = bytes, kSuccess;
}

ENTRY cuMemFreeHost(void* pointer) {
  {
    const std::lock_guard lock(pinned().mutex);
    NEED(pinned().blocks.erase(reinterpret_cast<uintptr_t>(pointer)) == 1)
  }
  std::free(pointer);
  return kSuccess;
}

ENTRY cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  NEED(attribute == kMemoryTypeOfPointer)
  const bool host = is_pinned(address);
  NEED(host || current->host_view(address) != nullptr)
  return *static_cast<unsigned*>(value) = host ? kMemoryTypeHost : 2, kSuccess;
}

// ---- memory of other processes ----

struct Shared {
  pid_t process;
  int file;
  size_t offset;
};

ENTRY cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  NEED_CONTEXT
  const std::lock_guard lock(current->mutex);
  auto after = current->allocations.upper_bound(address);
  NEED(after != current->allocations.begin())
  const Shared shared{getpid(), current->file, std::prev(after)->first - current->regions[0].device};
  std::memcpy(handle->reserved, &shared, sizeof(shared));
  return kSuccess;
}

ENTRY cuIpcOpenMemHandle_v2(CUdeviceptr* opened, CUipcMemHandle handle, unsigned) {
  NEED_CONTEXT
  Shared shared{};
  std::memcpy(&shared, handle.reserved, sizeof(shared));
  NEED(shared.process != getpid())
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  NEED(file >= 0)
  const Region region = map_file(file, current->kind.memory);
  close(file);
  const std::lock_guard lock(current->mutex);
  current->regions.push_back(region);
  return *opened = region.device + shared.offset, kSuccess;
}

ENTRY cuIpcCloseMemHandle(CUdeviceptr address) {
  NEED_CONTEXT
  const std::lock_guard lock(current->mutex);
  auto& regions = current->regions;
  for (auto region = regions.begin() + 1; region != regions.end(); ++region) {
    if (address - region->device < region->size) {
      munmap(reinterpret_cast<void*>(region->device), region->size);
      munmap(region->host, region->size);
      regions.erase(region);
      return kSuccess;
    }
  }
  return kInvalidValue;
}

// ---- streams ----

ENTRY cuStreamCreateWithPriority(CUstream* stream, unsigned, int priority) {
  NEED_CONTEXT
  auto* const made = new Stream(*current, std::clamp(priority, kGreatestPriority, 0));
  return *stream = reinterpret_cast<CUstream>(made), kSuccess;
}
ENTRY cuStreamDestroy_v2(CUstream stream) {
  return of(stream).destroy(), kSuccess;
}
ENTRY cuStreamQuery(CUstream stream) {
  NEED_CONTEXT
  return of(stream).capture != nullptr ? kCaptureUnsupported : of(stream).is_idle() ? kSuccess : kNotReady;
}
ENTRY cuStreamSynchronize(CUstream stream) {
  NEED_CONTEXT
  return of(stream).capture != nullptr ? kCaptureUnsupported
                                       : (of(stream).synchronize(), of(stream).device.fault.load());
}
ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  const std::shared_ptr<Capture>& capture = reinterpret_cast<Event*>(event)->capture;
  if (capture != nullptr) {
    if (of(stream).capture == nullptr) {
      of(stream).capture = capture;
      capture->streams.push_back(&of(stream));
    }
    return of(stream).capture == capture ? kSuccess : kCaptureIsolation;
  }
  const std::shared_ptr<Moments> moments = of(event);
  const std::lock_guard lock(moments->mutex);
  of(stream).queue([moments, which = moments->recorded] { moments->wait(which); }, Job::kBookkeeping);
  return kSuccess;
}
// For of_libcuda.h.
extern "C" void* opsmith_stand_in_view(void* pointer) {
  return host_view_or_itself(pointer);
}

ENTRY cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* argument) {
  NEED_OWN(stream)
  of(stream).queue([=] { function(argument); });
  return kSuccess;
}

// ---- events ----

ENTRY cuEventCreate(CUevent* event, unsigned) {
  NEED_CONTEXT
  return *event = reinterpret_cast<CUevent>(new Event{*current}), kSuccess;
}
ENTRY cuEventDestroy_v2(CUevent event) {
  return delete reinterpret_cast<Event*>(event), kSuccess;
}
ENTRY cuEventRecord(CUevent event, CUstream stream) {
  NEED_OWN(stream)
  if (&reinterpret_cast<Event*>(event)->device != current) {
    return kInvalidHandle;
  }
  reinterpret_cast<Event*>(event)->capture = of(stream).capture;
  if (of(stream).capture != nullptr) {
    return kSuccess;
  }
  const std::shared_ptr<Moments> moments = of(event);
  uint64_t which = 0;
  {
    const std::lock_guard lock(moments->mutex);
    which = ++moments->recorded;
  }
  of(stream).queue(
      [=] {
        const std::lock_guard lock(moments->mutex);
        moments->done = std::max(moments->done, which);
        moments->at = std::chrono::steady_clock::now();
        moments->changed.notify_all();
      },
      Job::kBookkeeping);
  return kSuccess;
}
ENTRY cuEventQuery(CUevent event) {
  NEED_CONTEXT
  if (reinterpret_cast<Event*>(event)->capture != nullptr) {
    return kCapturedEvent;
  }
  const std::lock_guard lock(of(event)->mutex);
  return of(event)->done >= of(event)->recorded ? kSuccess : kNotReady;
}
ENTRY cuEventSynchronize(CUevent event) {
  NEED_CONTEXT
  if (reinterpret_cast<Event*>(event)->capture != nullptr) {
    return kCapturedEvent;
  }
  return of(event)->wait(of(event)->recorded), reinterpret_cast<Event*>(event)->device.fault.load();
}
ENTRY cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = std::chrono::duration<float, std::milli>(of(end)->at - of(start)->at).count();
  return kSuccess;
}

// ---- graphs ----

ENTRY cuStreamBeginCapture_v2(CUstream stream, int) {
  NEED(of(stream).capture == nullptr)
  of(stream).capture = std::make_shared<Capture>();
  return of(stream).capture->streams.push_back(&of(stream)), kSuccess;
}
ENTRY cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const std::shared_ptr<Capture> ended = of(stream).capture;
  NEED(ended != nullptr)
  for (Stream* const each : ended->streams) {
    each->capture = nullptr;
  }
  return *graph = reinterpret_cast<CUgraph>(new SharedCapture(ended)), kSuccess;
}
ENTRY cuStreamIsCapturing(CUstream stream, int* state) {
  return *state = of(stream).capture != nullptr ? 1 : kCaptureNone, kSuccess;
}
ENTRY cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  // Never written again, so a graph and its executables are one.
  return *executable = reinterpret_cast<CUgraphExec>(graph), kSuccess;
}
ENTRY cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  NEED_OWN(stream)
  return of(stream).launch(*reinterpret_cast<SharedCapture*>(executable)), kSuccess;
}
ENTRY cuGraphExecDestroy(CUgraphExec) {
  return kSuccess;
}
ENTRY cuGraphDestroy(CUgraph) {
  return kSuccess;
}
ENTRY cuGraphDebugDotPrint(CUgraph, const char* path, unsigned) {
  std::FILE* const file = std::fopen(path, "w");
  NEED(file != nullptr)
  std::fputs("digraph stand_in {}\n", file);
  return std::fclose(file), kSuccess;
}

// ---- kernels ----

ENTRY cuModuleLoadData(CUmodule* module, const void* image) {
  NEED_CONTEXT
  // As libnvrtc.cpp writes it: the target, NVRTC's version, a library.
  std::istringstream text(static_cast<const char*>(image));
  std::string target;
  std::string path;
  int version = 0;
  text >> target >> version >> path;
  const Kind& kind = current->kind;
  const int own = 10 * kind.major + kind.minor;
  const int wanted = std::atoi(target.c_str() + target.find('_') + 1);
  if (version > setting("OPSMITH_STAND_IN_DRIVER", 13000)) {
    return kUnsupportedPtxVersion;
  }
  if (target.starts_with("sm_") ? wanted != own : wanted > own) {
    return kNoBinaryForGpu;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return kInvalidImage;
  }
  return *module = reinterpret_cast<CUmodule>(new Module{*current, library}), kSuccess;
}
ENTRY cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const auto& [device, library] = *reinterpret_cast<Module*>(module);
  void* const found = dlsym(library, (std::string("launch_") + name).c_str());
  if (found == nullptr) {
    return kNotFound;
  }
  auto* const made = new Function{device, reinterpret_cast<decltype(Function::launch)>(found)};
  return *function = reinterpret_cast<CUfunction>(made), kSuccess;
}
ENTRY cuFuncSetAttribute(CUfunction, int, int) {
  return kSuccess;
}
ENTRY cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned, CUstream stream, void** arguments, void**) {
  NEED_OWN(stream)
  if (&reinterpret_cast<Function*>(function)->device != current) {
    return kInvalidHandle;
  }
  NEED(gx > 0 && gy > 0 && gz > 0 && bx > 0 && by > 0 && bz > 0)
  NEED(gx < 1U << 31 && gy < 1U << 16 && gz < 1U << 16)
  NEED(bx * by * bz <= kMostThreads && bz <= 64)
  const dim3 grid{gx, gy, gz};
  const dim3 items{bx, by, bz};
  std::function<void()> job;
  reinterpret_cast<Function*>(function)->launch(&grid, &items, arguments, host_view_or_itself, &job);
  of(stream).queue(std::move(job), Job::kKernel);
  return kSuccess;
}
