// The wrapper around PyTorch's CPU allocator. See result_memory.h.
#include <opsmith/device/result_memory.h>

#include <opsmith/device/empty.h>
#include <opsmith/host_access.h>
#include <opsmith/device/staging.h>

#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <atomic>
#include <utility>

namespace opsmith {
namespace {

thread_local c10::DeviceIndex target_device = -1;

// Note [A result's memory is known by its host address]
// PyTorch allocates for oneDNN through raw_allocate(), which insists that a DataPtr's context be its data. So
// the device's DataPtr cannot travel as the context; it waits here, under the host address. Few allocations
// live at a time (a result leaves as soon as its operator ends), hence short lists that are searched from
// their ends.
class LiveAllocations {
 public:
  void insert(void* host_pointer, at::DataPtr memory) {
    Shard& shard = shard_of(host_pointer);
    const Lock lock(shard);
    shard.entries.emplace_back(host_pointer, std::move(memory));
  }

  // The device memory behind `host_pointer`; empty when there is none, or none of `device` (-1: any).
  at::DataPtr remove(void* host_pointer, c10::DeviceIndex device = -1) {
    Shard& shard = shard_of(host_pointer);
    const Lock lock(shard);
    for (size_t i = shard.entries.size(); i-- > 0;) {
      if (shard.entries[i].first == host_pointer) {
        if (device >= 0 && shard.entries[i].second.device().index() != device) {
          return {};
        }
        at::DataPtr memory = std::move(shard.entries[i].second);
        if (i + 1 != shard.entries.size()) {
          shard.entries[i] = std::move(shard.entries.back());
        }
        shard.entries.pop_back();
        return memory;
      }
    }
    return {};
  }

 private:
  struct alignas(64) Shard {
    std::atomic_flag locked = ATOMIC_FLAG_INIT;
    c10::SmallVector<std::pair<void*, at::DataPtr>, 2> entries;
  };

  class Lock {
   public:
    explicit Lock(Shard& shard) : shard_(shard) {
      while (shard_.locked.test_and_set(std::memory_order_acquire)) {
        shard_.locked.wait(true, std::memory_order_relaxed);
      }
    }
    ~Lock() {
      shard_.locked.clear(std::memory_order_release);
      shard_.locked.notify_one();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Shard& shard_;
  };

  Shard& shard_of(const void* pointer) {
    // Allocations are aligned, so the low bits tell nothing; large ones start at page boundaries.
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return shards_[((address >> 6) ^ (address >> 12) ^ (address >> 21)) % shards_.size()];
  }

  std::array<Shard, 64> shards_;
};

LiveAllocations& live_allocations() {
  // Never destroyed: tensors of static lifetime are freed after this library's own statics.
  static auto* const live = new LiveAllocations();
  return *live;
}

void release(void* host_pointer) {
  // Going out of scope, the device's DataPtr frees the memory.
  const at::DataPtr memory = live_allocations().remove(host_pointer);
}

c10::Allocator* wrapped_allocator = nullptr;

// For raw_deallocate(), which has only the pointer.
void release_either(void* pointer) {
  if (live_allocations().remove(pointer).get() == nullptr) {
    wrapped_allocator->raw_deleter()(pointer);
  }
}

class CpuAllocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = target_device;
    if (C10_LIKELY(device < 0) || bytes == 0 || (!has_host_window() && bytes < kLeastStaging)) {
      return wrapped_allocator->allocate(bytes);
    }
    at::DataPtr memory = has_host_window() ? allocate_on(device, bytes) : allocate_staging(bytes);
    void* host_pointer = has_host_window() ? driver().host_window(memory.get()) : memory.get();
    if (host_pointer == nullptr) {
      return wrapped_allocator->allocate(bytes);
    }
    if (has_host_window()) {
      wait_for_device(device);  // what used the memory before may still be queued
    }
    live_allocations().insert(host_pointer, std::move(memory));
    return {host_pointer, host_pointer, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_either; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

// Here rather than at the first operator: PyTorch wants allocators set before other threads allocate.
[[maybe_unused]] const bool installed = [] {
  wrapped_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(new CpuAllocator(), /*priority=*/1);
  return true;
}();

}  // namespace

ResultMemory::ResultMemory(c10::DeviceIndex device) noexcept
    : previous_(std::exchange(target_device, device)) {}

ResultMemory::~ResultMemory() {
  target_device = previous_;
}

at::DataPtr ResultMemory::take(at::DataPtr& memory, c10::DeviceIndex device) {
  if (memory.get_deleter() != &release) {
    return {};
  }
  at::DataPtr device_memory = live_allocations().remove(memory.get(), device);
  if (device_memory.get() != nullptr) {
    memory.release_context();
  }
  return device_memory;
}

}  // namespace opsmith
