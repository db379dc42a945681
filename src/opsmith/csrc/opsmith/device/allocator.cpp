// See allocator.h.
#include <opsmith/device/allocator.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/given.h>
#include <opsmith/fallback/staging.h>
#include <opsmith/device/stream.h>

namespace opsmith {

namespace {

// One allocation; the DataPtr's context. The live ones of a device form a list, which is walked only to find
// the device of an address.
struct Block {
  void* data;
  size_t bytes;
  c10::DeviceIndex device;
  opsmith_stream stream;                        // current when the block was allocated
  std::vector<opsmith_stream> other_streams{};  // from recordStream()
  Block* previous = nullptr;
  Block* next = nullptr;
};

void release_block(void* context) noexcept;

struct alignas(64) DeviceBlocks {
  std::mutex mutex;
  Block* first = nullptr;
  c10::CachingAllocator::Stat bytes;
  c10::CachingAllocator::Stat count;
  int64_t failures = 0;  // out of memory
};

class DriverAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex index = current_device();
    const c10::Device device(c10::kPrivateUse1, index);
    if (bytes == 0) {
      return {nullptr, nullptr, &release_block, device};
    }
    void* data = nullptr;
    const opsmith_status status = driver().allocate(index, bytes, &data);
    if (C10_UNLIKELY(status != OPSMITH_OK)) {
      throw_allocation_failure(status, index, bytes);
    }
    check_allocation(data, index, bytes);
    auto* const block =
        new Block{.data = data, .bytes = bytes, .device = index, .stream = current_stream(index)};
    DeviceBlocks& blocks = blocks_[index];
    int64_t live = 0;
    {
      const std::lock_guard lock(blocks.mutex);
      block->next = blocks.first;
      if (blocks.first != nullptr) {
        blocks.first->previous = block;
      }
      blocks.first = block;
      blocks.bytes.increase(bytes);
      blocks.count.increase(1);
      live = blocks.bytes.current;
    }
    c10::reportMemoryUsageToProfiler(data, static_cast<int64_t>(bytes), static_cast<size_t>(live),
                                     static_cast<size_t>(live), device);
    return {data, block, &release_block, device};
  }

  void release(Block* block) noexcept {
    if (detail::loaded_driver == nullptr) {
      return;  // a forked child drops a tensor of its parent's: neither the memory nor the lock is ours
    }
    finish_stream(block->stream, block->device);
    for (const opsmith_stream stream : block->other_streams) {
      finish_stream(stream, block->device);
    }
    DeviceBlocks& blocks = blocks_[block->device];
    int64_t live = 0;
    {
      const std::lock_guard lock(blocks.mutex);
      (block->previous != nullptr ? block->previous->next : blocks.first) = block->next;
      if (block->next != nullptr) {
        block->next->previous = block->previous;
      }
      blocks.bytes.decrease(block->bytes);
      blocks.count.decrease(1);
      live = blocks.bytes.current;
    }
    c10::reportMemoryUsageToProfiler(block->data, -static_cast<int64_t>(block->bytes),
                                     static_cast<size_t>(live), static_cast<size_t>(live),
                                     c10::Device(c10::kPrivateUse1, block->device));
    // Nothing can be done here about a failure; the next call on a lost device raises.
    detail::loaded_driver->release(block->device, block->data);
    delete block;
  }

  std::optional<c10::DeviceIndex> device_of(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      DeviceBlocks& blocks = blocks_[device];
      const std::lock_guard lock(blocks.mutex);
      for (const Block* block = blocks.first; block != nullptr; block = block->next) {
        const auto start = reinterpret_cast<uintptr_t>(block->data);
        if (address >= start && address - start < block->bytes) {
          return device;
        }
      }
    }
    return std::nullopt;
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    if (count == 0) {
      return;
    }
    auto& self = const_cast<DriverAllocator&>(*this);  // c10's signature; the walk takes the blocks' lock
    const c10::DeviceIndex to = self.device_of(destination).value_or(current_device());
    const c10::DeviceIndex from = self.device_of(source).value_or(to);
    check(driver().copy(destination, to, source, from, count, current_stream(to)), "copy an allocation", to);
  }

  // ---- c10::DeviceAllocator ----

  bool initialized() override { return detail::loaded_driver != nullptr; }

  // No device memory is kept, but host memory for copies of it.
  void emptyCache(c10::MempoolId_t) override { release_idle_staging(); }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // Memory that is not ours, say of from_blob(), is released by whoever made it.
    if (data.get_context() == nullptr || data.get_deleter() != &release_block) {
      return;
    }
    const opsmith_stream used_on = native_stream(stream);
    auto* const block = static_cast<Block*>(data.get_context());
    const std::lock_guard lock(blocks_[block->device].mutex);
    std::vector<opsmith_stream>& others = block->other_streams;
    if (used_on != block->stream && std::find(others.begin(), others.end(), used_on) == others.end()) {
      others.push_back(used_on);
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    DeviceBlocks& blocks = blocks_[checked_device(device)];
    const std::lock_guard lock(blocks.mutex);
    // Without a cache every kind of bytes is the same, and so is every kind of count.
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* const bytes :
         {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*bytes)[kAll] = blocks.bytes;
    }
    for (auto* const count : {&stats.allocation, &stats.segment, &stats.active}) {
      (*count)[kAll] = blocks.count;
    }
    stats.num_ooms = blocks.failures;
    stats.num_device_alloc = blocks.count.allocated;
    stats.num_device_free = blocks.count.freed;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    DeviceBlocks& blocks = blocks_[checked_device(device)];
    const std::lock_guard lock(blocks.mutex);
    blocks.bytes.reset_accumulated();
    blocks.count.reset_accumulated();
    blocks.failures = 0;
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    DeviceBlocks& blocks = blocks_[checked_device(device)];
    const std::lock_guard lock(blocks.mutex);
    blocks.bytes.reset_peak();
    blocks.count.reset_peak();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    device = checked_device(device);
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    check(driver().device_memory(device, &free_bytes, &total_bytes), "ask for the free memory", device);
    return {free_bytes, total_bytes};
  }

 private:
  // Refuses what would end in a crash: no memory, or memory that the window does not show.
  static void check_allocation(void* data, c10::DeviceIndex device, size_t bytes) {
    checked_given(data, "allocate", device);
    const auto window = driver().host_window;
    if (window != nullptr && C10_UNLIKELY(window(data) == nullptr)) {
      detail::loaded_driver->release(device, data);
      TORCH_CHECK(false, "the driver \"", driver().name, "\" has a host window, but none for the ", bytes,
                  " bytes that it allocated on ", c10::Device(c10::kPrivateUse1, device),
                  ". Let `host_window` give their address, or say `host_window: off` in the description.");
    }
  }

  [[noreturn]] void throw_allocation_failure(opsmith_status status, c10::DeviceIndex device, size_t bytes) {
    if (status != OPSMITH_OUT_OF_MEMORY) {
      checked_device(device);  // the likeliest mistake, and its error is clearer
      check(status, c10::str("allocate ", bytes, " bytes").c_str(), device);
    }
    const std::string reason = last_error();  // before the next call replaces it
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    driver().device_memory(device, &free_bytes, &total_bytes);
    int64_t live = 0;
    int64_t blocks_alive = 0;
    {
      DeviceBlocks& blocks = blocks_[device];
      const std::lock_guard lock(blocks.mutex);
      ++blocks.failures;
      live = blocks.bytes.current;
      blocks_alive = blocks.count.current;
    }
    const c10::Device where(c10::kPrivateUse1, device);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(live),
                                     static_cast<size_t>(live), where);
    using c10::CachingAllocator::format_size;
    TORCH_CHECK_WITH(OutOfMemoryError, false, where, " is out of memory: ", format_size(bytes),
                     " were asked for, ", format_size(free_bytes), " of ", format_size(total_bytes),
                     " are free, and this process holds ", format_size(static_cast<uint64_t>(live)),
                     " (allocations: ", blocks_alive,
                     "). Delete tensors that are no longer needed, use a smaller batch, or trade memory "
                     "for time with torch.utils.checkpoint. The driver says: ",
                     reason);
  }

  DeviceBlocks blocks_[kMostDevices];
};

// Never destroyed: tensors may be released while the process ends.
DriverAllocator* const device_memory = new DriverAllocator;

void release_block(void* context) noexcept {
  if (context != nullptr) {
    device_memory->release(static_cast<Block*>(context));
  }
}

[[maybe_unused]] const bool allocator_registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, device_memory);
  return true;
}();

}  // namespace

c10::DeviceAllocator& device_allocator() {
  return *device_memory;
}

std::optional<c10::DeviceIndex> device_of(const void* pointer) {
  return device_memory->device_of(pointer);
}

}  // namespace opsmith
