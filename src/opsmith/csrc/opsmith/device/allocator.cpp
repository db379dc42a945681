// See allocator.h.
#include <opsmith/device/allocator.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/util/Exception.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/device_work.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_memory.h>
#include <opsmith/device/pool_of_thread.h>
#include <opsmith/device/staging.h>
#include <opsmith/device/stream.h>
#include <opsmith/torch_version.h>

namespace opsmith {

namespace {

using caching::Block;
using caching::CachingAllocator;

void release_block(void* context) noexcept;
void release_by_address(void* data) noexcept;

// The blocks of memory that is released by its address.
class BlocksByAddress {
 public:
  void add(void* data, Block* block) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, block);
  }
  // Null for memory that is not ours.
  Block* find(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    return found != blocks_.end() ? found->second : nullptr;
  }
  Block* take(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    Block* const block = found->second;
    blocks_.erase(found);
    return block;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Block*> blocks_;
};

// Never destroyed: tensors may be released while the process ends.
BlocksByAddress* const blocks_by_address = new BlocksByAddress;

// The block of the allocator's that `data` owns; nullptr for memory of elsewhere.
Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &release_block ? static_cast<Block*>(data.get_context())
                                              : blocks_by_address->find(data.get());
}

struct DeviceCache {
  explicit DeviceCache(c10::DeviceIndex device, size_t alignment)
      : memory(device), allocator(memory, allocator_settings(), alignment) {}

  DriverMemory memory;
  CachingAllocator allocator;
};

c10::CachingAllocator::Stat stat_of(const caching::Count& count) {
  c10::CachingAllocator::Stat stat;
  stat.current = count.current;
  stat.peak = count.peak;
  stat.allocated = count.allocated;
  stat.freed = count.freed;
  return stat;
}

c10::CachingAllocator::StatArray stats_of(const caching::PoolCounts& counts) {
  using c10::CachingAllocator::StatType;
  c10::CachingAllocator::StatArray stats;
  stats[static_cast<size_t>(StatType::AGGREGATE)] = stat_of(counts.all);
  stats[static_cast<size_t>(StatType::SMALL_POOL)] = stat_of(counts.of_kind[0]);
  stats[static_cast<size_t>(StatType::LARGE_POOL)] = stat_of(counts.of_kind[1]);
  return stats;
}

void report_to_profiler(const CachingAllocator& allocator, void* data, int64_t bytes,
                        c10::DeviceIndex device) {
  const caching::Statistics statistics = allocator.statistics();
  c10::reportMemoryUsageToProfiler(data, bytes, static_cast<size_t>(statistics.allocated_bytes.all.current),
                                   static_cast<size_t>(statistics.reserved_bytes.all.current),
                                   c10::Device(c10::kPrivateUse1, device));
}

[[noreturn]] void throw_out_of_memory(const caching::MemoryShortage& shortage, c10::DeviceIndex device) {
  const c10::Device where(c10::kPrivateUse1, device);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(shortage.asked),
                                   static_cast<size_t>(shortage.allocated),
                                   static_cast<size_t>(shortage.held), where);
  const bool is_fragmented = shortage.cached() >= shortage.asked;
  const std::string says = shortage.failure.empty()
                               ? c10::str("set_per_process_memory_fraction() sets what the process may hold.")
                               : c10::str("The driver says: ", shortage.failure);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, where, " out of memory. ", shortage.text(Serving::text()),
      ". Delete tensors that are no longer needed, use a smaller batch, or trade memory for time "
      "with torch.utils.checkpoint. ",
      is_fragmented ? "What is cached lies beside tensors in the same segments: "
                      "OPSMITH_ALLOC_CONF=max_split_size_mb:64 keeps large segments whole. "
                    : "",
      says);
}

ReleaseObserver release_observer = nullptr;

class DriverAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    const c10::Device device(c10::kPrivateUse1, index);
    if (bytes == 0) {
      return {nullptr, nullptr, &release_block, device};
    }
    driver();                      // raises after a fork
    check(OPSMITH_OK, "", index);  // raises what failed where memory was released
    CachingAllocator& allocator = cache(index);
    Block* block = nullptr;
    const opsmith_stream stream = current_stream(index);
    try {
      const uint64_t of_graph = pool_for(stream);
      block = allocator.allocate(bytes, stream, of_graph != 0 ? of_graph : pool_of_thread(index));
    } catch (const caching::OutOfMemory& error) {
      throw_out_of_memory(error.shortage(), index);
    }
    void* const data = allocator.data(block);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
      report_to_profiler(allocator, data, static_cast<int64_t>(block->size), index);
    }
    return {data, block, &release_block, device};
  }

  void release(Block* block) noexcept {
    if (detail::loaded_driver == nullptr) {
      return;  // a forked child drops a tensor of its parent's: neither the memory nor the lock is ours
    }
    CachingAllocator& allocator = *block->segment->owner;
    if (C10_UNLIKELY(release_observer != nullptr)) {
      release_observer(*block, static_cast<const DriverMemory&>(allocator.memory()).device());
    }
    if (C10_LIKELY(!c10::memoryProfilingEnabled())) {
      allocator.free(block);
      return;
    }
    void* const data = allocator.data(block);
    const auto bytes = static_cast<int64_t>(block->size);
    allocator.free(block);
    report_to_profiler(allocator, data, -bytes,
                       static_cast<const DriverMemory&>(allocator.memory()).device());
  }

  // The allocator of `device`; made when it is first asked for, since the driver tells its alignment.
  CachingAllocator& cache(c10::DeviceIndex device) {
    DeviceCache* const made = caches_[device].load(std::memory_order_acquire);
    return C10_LIKELY(made != nullptr) ? made->allocator : make_cache(device);
  }

  // That of a device on which something was allocated; else null, and there is nothing to tell of it.
  CachingAllocator* made_cache(c10::DeviceIndex device) const {
    DeviceCache* const made = caches_[device].load(std::memory_order_acquire);
    return made == nullptr ? nullptr : &made->allocator;
  }

  std::optional<BlockPlace> block_at(const void* pointer) const {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      if (const DeviceCache* const cache = caches_[device].load(std::memory_order_acquire)) {
        if (const std::optional<caching::BlockView> block = cache->allocator.block_at(pointer)) {
          return BlockPlace{device, *block};
        }
      }
    }
    return std::nullopt;
  }

  std::optional<c10::DeviceIndex> device_of(const void* pointer) const {
    const std::optional<BlockPlace> found = block_at(pointer);
    return found.has_value() && found->block.is_allocated ? std::optional(found->device) : std::nullopt;
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    if (count == 0) {
      return;
    }
    const c10::DeviceIndex to = device_of(destination).value_or(current_device());
    const c10::DeviceIndex from = device_of(source).value_or(to);
    const profile::StreamWork work("Memcpy DtoD", to, profile::Kind::kCopy, count);
    check(driver().copy(destination, to, source, from, count, current_stream(to)), "copy an allocation", to);
  }

  // ---- c10::DeviceAllocator ----

  bool initialized() override { return detail::loaded_driver != nullptr; }

  // Host memory that is kept for copies too.
  void emptyCache(c10::MempoolId_t) override {
    release_idle_staging();
    if (detail::loaded_driver == nullptr) {
      return;
    }
    for (const auto& cache : caches_) {
      if (DeviceCache* const made = cache.load(std::memory_order_acquire); made != nullptr) {
        made->allocator.empty_cache();
      }
    }
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Block* const block = block_of(data);
    // Memory that is not ours, say of from_blob(), is released by whoever made it.
    if (block == nullptr) {
      return;
    }
    block->segment->owner->record_stream(block, native_stream(stream));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const CachingAllocator* const made = made_cache(checked_device(device));
    const caching::Statistics counted = made == nullptr ? caching::Statistics() : made->statistics();
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = stats_of(counted.allocation);
    stats.allocated_bytes = stats_of(counted.allocated_bytes);
    stats.active = stats_of(counted.active);
    stats.active_bytes = stats_of(counted.active_bytes);
    stats.segment = stats_of(counted.segment);
    stats.reserved_bytes = stats_of(counted.reserved_bytes);
    stats.inactive_split = stats_of(counted.inactive_split);
    stats.inactive_split_bytes = stats_of(counted.inactive_split_bytes);
    stats.requested_bytes = stats_of(counted.requested_bytes);
    stats.oversize_allocations = stat_of(counted.oversize_allocation);
    stats.oversize_segments = stat_of(counted.oversize_segment);
    stats.num_alloc_retries = counted.retries;
    stats.num_ooms = counted.out_of_memory;
    stats.num_sync_all_streams = counted.synchronizations;
    stats.num_device_alloc = counted.device_allocations;
    stats.num_device_free = counted.device_releases;
    stats.max_split_size = static_cast<int64_t>(
        std::min<size_t>(allocator_settings().max_split_size, std::numeric_limits<int64_t>::max()));
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (CachingAllocator* const made = made_cache(checked_device(device)); made != nullptr) {
      made->reset_accumulated();
    }
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    if (CachingAllocator* const made = made_cache(checked_device(device)); made != nullptr) {
      made->reset_peaks();
    }
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) OPSMITH_OVERRIDE_SINCE_2_10 {
    return memory_info(device);
  }

 private:
  // Without a lock while the driver works, as make_stream(). Of two threads that make the same one, one drops
  // its own.
  CachingAllocator& make_cache(c10::DeviceIndex device) {
    checked_device(device);
    opsmith_device_properties properties{};
    check(driver().device_properties(device, &properties), "ask for the properties", device);
    auto made = std::make_unique<DeviceCache>(device, properties.alignment);
    DeviceCache* earlier = nullptr;
    if (caches_[device].compare_exchange_strong(earlier, made.get(), std::memory_order_acq_rel)) {
      return made.release()->allocator;  // never destroyed: tensors may be released while the process ends
    }
    return earlier->allocator;
  }

  std::array<std::atomic<DeviceCache*>, kMostDevices> caches_{};
};

// Never destroyed, for the same reason.
DriverAllocator* const device_memory = new DriverAllocator;

void release_block(void* context) noexcept {
  if (context != nullptr) {
    device_memory->release(static_cast<Block*>(context));
  }
}

void release_by_address(void* data) noexcept {
  release_block(blocks_by_address->take(data));
}

[[maybe_unused]] const bool allocator_registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, device_memory);
  return true;
}();

}  // namespace

void observe_releases(ReleaseObserver observer) {
  release_observer = observer;
}

c10::DeviceAllocator& device_allocator() {
  return *device_memory;
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) {
  device = checked_device(device);
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  check(driver().device_memory(device, &free_bytes, &total_bytes), "ask for the free memory", device);
  return {free_bytes, total_bytes};
}

CachingAllocator& device_cache(c10::DeviceIndex device) {
  return device_memory->cache(checked_device(device));
}

caching::CachingAllocator* used_device_cache(c10::DeviceIndex device) {
  return device_memory->made_cache(checked_device(device));
}

const caching::Settings& allocator_settings() {
  static const caching::Settings settings = [] {
    const char* const text = std::getenv("OPSMITH_ALLOC_CONF");
    try {
      return caching::parse_settings(text != nullptr ? text : "");
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, "OPSMITH_ALLOC_CONF is `", text, "`: ", error.what(),
                  "\n  remedy: write it as docs/observe/memory.md says, like "
                  "OPSMITH_ALLOC_CONF=max_split_size_mb:64,garbage_collection_threshold:0.8");
    }
  }();
  return settings;
}

void make_shareable(c10::DataPtr& data) {
  if (data.get() != nullptr && data.get_deleter() == &release_block) {
    void* const address = data.get();
    const c10::Device device = data.device();
    blocks_by_address->add(address, static_cast<Block*>(data.release_context()));
    data = c10::DataPtr(address, address, &release_by_address, device);
  }
}

std::optional<MemoryPlace> place_of(const c10::DataPtr& data) {
  const Block* const block = block_of(data);
  if (block == nullptr) {
    return std::nullopt;
  }
  char* const allocation = block->segment->data;
  return MemoryPlace{data.device().index(), allocation,
                     static_cast<size_t>(static_cast<const char*>(data.get()) - allocation)};
}

std::optional<BlockPlace> block_at(const void* pointer) {
  return device_memory->block_at(pointer);
}

std::optional<c10::DeviceIndex> device_of(const void* pointer) {
  return device_memory->device_of(pointer);
}

}  // namespace opsmith
