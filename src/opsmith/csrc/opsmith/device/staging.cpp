// See staging.h.
#include <opsmith/device/staging.h>

#include <c10/core/impl/alloc_cpu.h>

#include <bit>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace opsmith {
namespace {

// Three float32 tensors of ten million elements, and as much again.
constexpr size_t kMostKept = size_t{256} << 20;

struct FreeCpu {
  void operator()(void* data) const { c10::free_cpu(data); }
};

struct StagingBlock {
  std::unique_ptr<void, FreeCpu> data;
  size_t bytes;
};

// Rounded up to an eighth of a power of two, so that blocks of almost equal tensors serve each other.
size_t rounded(size_t bytes) {
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

class IdleBlocks {
 public:
  // The youngest of that size, whose pages are likeliest to be in the processor's caches.
  StagingBlock take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].bytes == bytes) {
        StagingBlock found = std::move(blocks_[i]);
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
        kept_ -= bytes;
        return found;
      }
    }
    return {nullptr, bytes};
  }

  // Keeps `block`, and lets go of the oldest ones beyond the bound.
  void put(StagingBlock block) {
    std::vector<StagingBlock> freed;  // after the lock
    // A forked child may find the lock taken by a thread that it does not have.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || block.bytes > kMostKept) {
      return;
    }
    kept_ += block.bytes;
    blocks_.push_back(std::move(block));
    size_t oldest = 0;
    for (; kept_ > kMostKept; ++oldest) {
      kept_ -= blocks_[oldest].bytes;
      freed.push_back(std::move(blocks_[oldest]));
    }
    blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(oldest));
  }

  void clear() {
    std::vector<StagingBlock> freed;
    const std::lock_guard lock(mutex_);
    freed.swap(blocks_);
    kept_ = 0;
  }

 private:
  std::mutex mutex_;
  std::vector<StagingBlock> blocks_;  // oldest first
  size_t kept_ = 0;
};

IdleBlocks& idle_blocks() {
  static auto* const blocks = new IdleBlocks();  // never destroyed: tensors may be released at exit
  return *blocks;
}

void release_staging(void* context) {
  const std::unique_ptr<StagingBlock> block(static_cast<StagingBlock*>(context));
  idle_blocks().put(std::move(*block));
}

}  // namespace

at::DataPtr allocate_staging(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes < kLeastStaging) {
    void* const data = c10::alloc_cpu(bytes);
    return {data, data, &c10::free_cpu, cpu};
  }
  auto block = std::make_unique<StagingBlock>(idle_blocks().take(rounded(bytes)));
  if (block->data == nullptr) {
    block->data.reset(c10::alloc_cpu(block->bytes));
  }
  void* const data = block->data.get();
  return {data, block.release(), &release_staging, cpu};
}

void release_idle_staging() noexcept {
  idle_blocks().clear();
}

}  // namespace opsmith
