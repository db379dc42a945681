// See pinned.h.
#include "pinned.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "errors.h"
#include "platform.h"
#include "stream.h"

namespace opencl {
namespace {

struct Mapped {
  cl_mem buffer;
  size_t bytes;
};

class PinnedMemory {
 public:
  void* allocate(size_t bytes) {
    cl_int error = kSuccess;
    const cl_mem buffer =
        api().CreateBuffer(platform().context, kMemReadWrite | kMemAllocHostPtr, bytes, nullptr, &error);
    check(error, "allocate pinned memory");
    void* const pointer = api().EnqueueMapBuffer(queue(), buffer, /*blocking=*/1, kMapRead | kMapWrite, 0,
                                                 bytes, 0, nullptr, nullptr, &error);
    if (error != kSuccess) {
      api().ReleaseMemObject(buffer);
      check(error, "map pinned memory");
    }
    const std::unique_lock lock(mutex_);
    ranges_.emplace(reinterpret_cast<uintptr_t>(pointer), Mapped{buffer, bytes});
    return pointer;
  }

  void release(void* pointer) {
    cl_mem buffer = nullptr;
    {
      const std::unique_lock lock(mutex_);
      const auto found = ranges_.find(reinterpret_cast<uintptr_t>(pointer));
      if (found == ranges_.end()) {
        throw Failure(OPSMITH_INVALID_ARGUMENT, "this address is not that of pinned memory");
      }
      buffer = found->second.buffer;
      ranges_.erase(found);
    }
    const cl_int error = api().EnqueueUnmapMemObject(queue(), buffer, pointer, 0, nullptr, nullptr);
    api().ReleaseMemObject(buffer);  // once it is unmapped
    check(error, "unmap pinned memory");
  }

  bool contains(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::shared_lock lock(mutex_);
    const auto after = ranges_.upper_bound(address);
    return after != ranges_.begin() && address - std::prev(after)->first < std::prev(after)->second.bytes;
  }

 private:
  // One of its own: mapping waits for what was queued before.
  static cl_command_queue queue() {
    static auto* const stream = new opsmith_stream_s(0);
    return stream->queue();
  }

  std::shared_mutex mutex_;
  std::map<uintptr_t, Mapped> ranges_;  // by address
};

// Never destroyed: tensors may be released while the process ends.
PinnedMemory& pinned_memory() {
  static auto* const the_memory = new PinnedMemory;
  return *the_memory;
}

}  // namespace

void* allocate_pinned(size_t bytes) {
  return pinned_memory().allocate(bytes);
}

void release_pinned(void* pointer) {
  pinned_memory().release(pointer);
}

bool is_pinned(const void* pointer) {
  return pinned_memory().contains(pointer);
}

}  // namespace opencl
