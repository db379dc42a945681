// See pinned.h.
#include <opsmith/device/pinned.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/torch_version.h>

namespace opsmith {

namespace {

void release_pinned(void* pointer) noexcept;

// A stream with copies that may still use a block.
struct UsedOn {
  opsmith_stream stream;
  c10::DeviceIndex device;
};

struct PinnedBlock {
  size_t bytes;
  std::vector<UsedOn> streams;
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_NOT_IMPLEMENTED(driver().pinned_allocate != nullptr, "the driver \"", driver().name,
                                "\" of the ", device_type_name(),
                                " device offers no pinned host memory; leave out pin_memory");
    if (bytes == 0) {
      return {nullptr, nullptr, &release_pinned, c10::kCPU};
    }
    void* pointer = nullptr;
    check(driver().pinned_allocate(bytes, &pointer), c10::str("pin ", bytes, " bytes of host memory").c_str(),
          current_device());
    checked_result(pointer, "pinned_allocate", current_device());
    const std::lock_guard lock(mutex_);
    blocks_.emplace(reinterpret_cast<uintptr_t>(pointer), PinnedBlock{bytes, {}});
    count_.increase(1);
    bytes_.increase(bytes);
    return {pointer, pointer, &release_pinned, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  void release(void* pointer) noexcept {
    if (pointer == nullptr || detail::loaded_driver == nullptr) {
      return;  // nothing, or a forked child drops memory of its parent's
    }
    PinnedBlock block{};
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
      if (found == blocks_.end()) {
        return;
      }
      block = std::move(found->second);
      blocks_.erase(found);
      count_.decrease(1);
      bytes_.decrease(block.bytes);
    }
    for (const auto& [stream, device] : block.streams) {
      finish_stream(stream, device);
    }
    detail::loaded_driver->pinned_release(pointer);
  }

  // ---- at::HostAllocator ----

  bool record_event(void* pointer, void* /*context*/, c10::Stream stream) override {
    const opsmith_stream used_on = native_stream(stream);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::lock_guard lock(mutex_);
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin() || address - std::prev(found)->first >= std::prev(found)->second.bytes) {
      return false;  // not our memory
    }
    std::vector<UsedOn>& streams = std::prev(found)->second.streams;
    if (std::none_of(streams.begin(), streams.end(), [&](const UsedOn& u) { return u.stream == used_on; })) {
      streams.push_back({used_on, stream.device_index()});
    }
    return true;
  }

  void empty_cache() override {}  // nothing is kept

  at::HostStats get_stats() override {
    const std::lock_guard lock(mutex_);
    auto stats = host_stats_of<at::HostStats>(count_, bytes_);
    stats.num_host_alloc = count_.allocated;
    stats.num_host_free = count_.freed;
    return stats;
  }

  PinnedStatistics statistics() {
    const std::lock_guard lock(mutex_);
    return {count_, bytes_};
  }

  void reset_accumulated_stats() override {
    const std::lock_guard lock(mutex_);
    count_.reset_accumulated();
    bytes_.reset_accumulated();
  }

  void reset_peak_stats() override {
    const std::lock_guard lock(mutex_);
    count_.reset_peak();
    bytes_.reset_peak();
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, PinnedBlock> blocks_;  // by start
  c10::CachingAllocator::Stat count_;
  c10::CachingAllocator::Stat bytes_;
};

// Never destroyed: pinned tensors may be released while the process ends.
PinnedAllocator* const pinned_memory = new PinnedAllocator;

void release_pinned(void* pointer) noexcept {
  pinned_memory->release(pointer);
}

REGISTER_HOST_ALLOCATOR(c10::kPrivateUse1, pinned_memory)

}  // namespace

at::HostAllocator& pinned_allocator() {
  return *pinned_memory;
}

PinnedStatistics pinned_statistics() {
  return pinned_memory->statistics();
}

bool is_pinned(const void* pointer) {
  const opsmith_driver* const loaded = detail::loaded_driver;
  return loaded != nullptr && loaded->pinned_contains != nullptr && loaded->pinned_contains(pointer) != 0;
}

void* graph_memory(size_t bytes, c10::DeviceIndex device) {
  if (driver().pinned_allocate == nullptr) {
    refuse_capture("a kernel on copies", "the driver has no pinned memory, through which they travel",
                   device);
  }
  auto memory = std::make_shared<c10::DataPtr>(pinned_allocator().allocate(bytes));
  void* const data = memory->get();
  keep_for_graph(std::move(memory));
  return data;
}

}  // namespace opsmith
