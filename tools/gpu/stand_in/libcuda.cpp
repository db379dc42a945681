// CUDA's driver API as far as cuda_driver calls it, on the host: a device of 4 GiB whose addresses the host
// cannot use, streams that are threads, kernels that libnvrtc.cpp compiled. What `check --dry-run` runs
// against; no more like a GPU than that.
#include "../../../src/opsmith/drivers/cuda_driver/api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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
#include <string>
#include <thread>
#include <vector>

#include "kernel.h"

using namespace cuda;

namespace {

constexpr size_t kMemory = size_t{4} << 30;
constexpr size_t kGrain = 512;
constexpr unsigned kMostThreads = 1024;
constexpr int kLaunchOutOfResources = 701;

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

struct Memory {
  std::mutex mutex;
  int file = memfd_create("device", MFD_CLOEXEC);
  std::vector<Region> regions;  // the first is the device's own, the others another process's
  std::map<size_t, size_t> free_blocks{{0, kMemory}};
  std::map<uintptr_t, size_t> allocations;
  std::map<uintptr_t, size_t> pinned;
  size_t used = 0;

  Memory() {
    if (ftruncate(file, kMemory) != 0) {
      std::abort();
    }
    regions.push_back(map_file(file, kMemory));
  }
};

Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

// Where the host finds a device address; null for any other address.
void* host_view(uintptr_t address) {
  const std::lock_guard lock(memory().mutex);
  for (const Region& region : memory().regions) {
    if (address - region.device < region.size) {
      return region.host + (address - region.device);
    }
  }
  return nullptr;
}

void* host_view_or_itself(void* pointer) {
  void* const found = host_view(reinterpret_cast<uintptr_t>(pointer));
  return found != nullptr ? found : pointer;
}

bool is_pinned(uintptr_t address) {
  const std::lock_guard lock(memory().mutex);
  auto after = memory().pinned.upper_bound(address);
  return after != memory().pinned.begin() && address - std::prev(after)->first < std::prev(after)->second;
}

// ---- streams and events ----

// The jobs that captured streams were given.
struct Capture {
  std::vector<std::function<void()>> jobs;
  std::vector<class Stream*> streams;
};
using SharedCapture = std::shared_ptr<Capture>;

class Stream {
 public:
  Stream() {
    std::thread([this] { work(); }).detach();
  }

  // Ends, and is no more, when what is queued is done.
  void destroy() { queue(nullptr); }
  std::shared_ptr<Capture> capture;  // of one thread at a time

  void queue(std::function<void()> job) {
    if (capture != nullptr) {
      capture->jobs.push_back(std::move(job));
      return;
    }
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
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
      const std::function<void()> job = jobs_.front();
      lock.unlock();
      if (!job) {
        delete this;
        return;
      }
      job();
      lock.lock();
      jobs_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
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
  std::shared_ptr<Moments> moments = std::make_shared<Moments>();
  std::shared_ptr<Capture> capture;  // in which it was recorded
};

Stream& of(CUstream stream) {
  static auto* const legacy = new Stream;
  return stream == nullptr ? *legacy : *reinterpret_cast<Stream*>(stream);
}

std::shared_ptr<Moments> of(CUevent event) {
  return reinterpret_cast<Event*>(event)->moments;
}

struct Function {
  void (*launch)(const dim3*, const dim3*, void**, stand_in::ToHost, std::function<void()>*);
};

thread_local bool has_context = false;

constexpr CUresult kInvalidContext = 201;
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
#define NEED_CONTEXT        \
  if (!has_context) {       \
    return kInvalidContext; \
  }

// ---- devices ----

ENTRY cuInit(unsigned) {
  return std::getenv("OPSMITH_STAND_IN_NO_DEVICE") != nullptr ? kNoDevice : kSuccess;
}
ENTRY cuDriverGetVersion(int* version) {
  return *version = 13000, kSuccess;
}
ENTRY cuGetErrorName(CUresult error, const char** name) {
  static const std::map<CUresult, const char*> names{
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
  };
  const auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalidValue : kSuccess;
}
ENTRY cuDeviceGetCount(int* count) {
  return *count = 1, kSuccess;
}
ENTRY cuDeviceGet(CUdevice* device, int ordinal) {
  NEED(ordinal == 0)
  return *device = 0, kSuccess;
}
ENTRY cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<size_t>(size), "a stand-in for a GPU, on the host");
  return kSuccess;
}
ENTRY cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  return *bytes = kMemory, kSuccess;
}
ENTRY cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  static const std::map<int, int> values{{kMaxThreadsPerBlock, kMostThreads},
                                         {kMaxSharedMemory, 48 << 10},
                                         {kMultiprocessors, 2},
                                         {kComputeMajor, 9},
                                         {kComputeMinor, 0}};
  const auto found = values.find(attribute);
  NEED(found != values.end())
  return *value = found->second, kSuccess;
}
ENTRY cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return *context = reinterpret_cast<CUcontext>(&memory()), kSuccess;
}
ENTRY cuCtxSetCurrent(CUcontext context) {
  return has_context = context != nullptr, kSuccess;
}

// ---- memory ----

ENTRY cuMemGetInfo_v2(size_t* available, size_t* total) {
  NEED_CONTEXT
  const std::lock_guard lock(memory().mutex);
  *available = kMemory - memory().used;
  return *total = kMemory, kSuccess;
}

ENTRY cuMemAlloc_v2(CUdeviceptr* made, size_t bytes) {
  NEED_CONTEXT
  NEED(bytes != 0)
  if (bytes > kMemory) {
    return kOutOfMemory;
  }
  const size_t size = (bytes + kGrain - 1) / kGrain * kGrain;
  Memory& all = memory();
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
  Memory& all = memory();
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
  NEED_CONTEXT
  void* const target = host_view(to);
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
  NEED_CONTEXT
  const void* const source = host_view(from);
  NEED(source != nullptr)
  of(stream).queue([=] { std::memcpy(to, source, bytes); });
  if (!is_pinned(reinterpret_cast<uintptr_t>(to))) {
    of(stream).synchronize();
  }
  return kSuccess;
}

ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  NEED_CONTEXT
  void* const target = host_view(to);
  const void* const source = host_view(from);
  NEED(target != nullptr && source != nullptr)
  of(stream).queue([=] { std::memmove(target, source, bytes); });
  return kSuccess;
}

ENTRY cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                        CUstream stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

ENTRY cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  NEED_CONTEXT
  void* const target = host_view(to);
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
  const std::lock_guard lock(memory().mutex);
  return memory().pinned[reinterpret_cast<uintptr_t>(*pointer)] = bytes, kSuccess;
}

ENTRY cuMemFreeHost(void* pointer) {
  {
    const std::lock_guard lock(memory().mutex);
    NEED(memory().pinned.erase(reinterpret_cast<uintptr_t>(pointer)) == 1)
  }
  std::free(pointer);
  return kSuccess;
}

ENTRY cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  NEED(attribute == kMemoryTypeOfPointer)
  const bool host = is_pinned(address);
  NEED(host || host_view(address) != nullptr)
  return *static_cast<unsigned*>(value) = host ? kMemoryTypeHost : 2, kSuccess;
}

// ---- memory of other processes ----

struct Shared {
  pid_t process;
  int file;
  size_t offset;
};

ENTRY cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const std::lock_guard lock(memory().mutex);
  auto after = memory().allocations.upper_bound(address);
  NEED(after != memory().allocations.begin())
  const Shared shared{getpid(), memory().file, std::prev(after)->first - memory().regions[0].device};
  std::memcpy(handle->reserved, &shared, sizeof(shared));
  return kSuccess;
}

ENTRY cuIpcOpenMemHandle_v2(CUdeviceptr* opened, CUipcMemHandle handle, unsigned) {
  Shared shared{};
  std::memcpy(&shared, handle.reserved, sizeof(shared));
  NEED(shared.process != getpid())
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  NEED(file >= 0)
  const Region region = map_file(file, kMemory);
  close(file);
  const std::lock_guard lock(memory().mutex);
  memory().regions.push_back(region);
  return *opened = region.device + shared.offset, kSuccess;
}

ENTRY cuIpcCloseMemHandle(CUdeviceptr address) {
  const std::lock_guard lock(memory().mutex);
  auto& regions = memory().regions;
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

ENTRY cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  NEED_CONTEXT
  return *stream = reinterpret_cast<CUstream>(new Stream), kSuccess;
}
ENTRY cuStreamDestroy_v2(CUstream stream) {
  return of(stream).destroy(), kSuccess;
}
ENTRY cuStreamQuery(CUstream stream) {
  return of(stream).capture != nullptr ? kCaptureUnsupported : of(stream).is_idle() ? kSuccess : kNotReady;
}
ENTRY cuStreamSynchronize(CUstream stream) {
  return of(stream).capture != nullptr ? kCaptureUnsupported : (of(stream).synchronize(), kSuccess);
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
  of(stream).queue([moments, which = moments->recorded] { moments->wait(which); });
  return kSuccess;
}
// For libcublas.cpp.
extern "C" void* opsmith_stand_in_view(void* pointer) {
  return host_view_or_itself(pointer);
}

ENTRY cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* argument) {
  of(stream).queue([=] { function(argument); });
  return kSuccess;
}

// ---- events ----

ENTRY cuEventCreate(CUevent* event, unsigned) {
  NEED_CONTEXT
  return *event = reinterpret_cast<CUevent>(new Event), kSuccess;
}
ENTRY cuEventDestroy_v2(CUevent event) {
  return delete reinterpret_cast<Event*>(event), kSuccess;
}
ENTRY cuEventRecord(CUevent event, CUstream stream) {
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
  of(stream).queue([=] {
    const std::lock_guard lock(moments->mutex);
    moments->done = std::max(moments->done, which);
    moments->at = std::chrono::steady_clock::now();
    moments->changed.notify_all();
  });
  return kSuccess;
}
ENTRY cuEventQuery(CUevent event) {
  if (reinterpret_cast<Event*>(event)->capture != nullptr) {
    return kCapturedEvent;
  }
  const std::lock_guard lock(of(event)->mutex);
  return of(event)->done >= of(event)->recorded ? kSuccess : kNotReady;
}
ENTRY cuEventSynchronize(CUevent event) {
  if (reinterpret_cast<Event*>(event)->capture != nullptr) {
    return kCapturedEvent;
  }
  return of(event)->wait(of(event)->recorded), kSuccess;
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
  of(stream).queue([recorded = *reinterpret_cast<SharedCapture*>(executable)] {
    for (const std::function<void()>& job : recorded->jobs) {
      job();
    }
  });
  return kSuccess;
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
  void* const library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return kNotFound;
  }
  return *module = reinterpret_cast<CUmodule>(library), kSuccess;
}
ENTRY cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  void* const found = dlsym(module, (std::string("launch_") + name).c_str());
  if (found == nullptr) {
    return kNotFound;
  }
  return *function =
             reinterpret_cast<CUfunction>(new Function{reinterpret_cast<decltype(Function::launch)>(found)}),
         kSuccess;
}
ENTRY cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                     unsigned bz, unsigned, CUstream stream, void** arguments, void**) {
  NEED_CONTEXT
  NEED(gx > 0 && gy > 0 && gz > 0 && bx > 0 && by > 0 && bz > 0)
  NEED(gx < 1U << 31 && gy < 1U << 16 && gz < 1U << 16)
  NEED(bx * by * bz <= kMostThreads && bz <= 64)
  const dim3 grid{gx, gy, gz};
  const dim3 items{bx, by, bz};
  std::function<void()> job;
  reinterpret_cast<Function*>(function)->launch(&grid, &items, arguments, host_view_or_itself, &job);
  of(stream).queue(std::move(job));
  return kSuccess;
}
