// See memory.h.
#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "errors.h"
#include "platform.h"

namespace opencl {
namespace {

constexpr size_t kAddressSpace = size_t{1} << 44;
constexpr size_t kMostKept = size_t{1} << 30;  // of released memory, for each device

struct Block {
  cl_mem buffer;
  size_t bytes;
  int device;
  bool live;
};

struct DeviceMemory {
  size_t live = 0;
  size_t kept = 0;
  std::unordered_map<size_t, std::vector<uintptr_t>> released;  // by size: addresses of blocks
};

class Memory {
 public:
  void* allocate(int device, size_t bytes) {
    const DeviceFacts& facts = device_facts(device);
    const size_t rounded = rounded_up(bytes);
    const std::unique_lock lock(mutex_);
    DeviceMemory& memory = memories_[device];
    if (auto& same = memory.released[rounded]; !same.empty()) {
      const uintptr_t address = same.back();
      same.pop_back();
      memory.kept -= rounded;
      memory.live += rounded;
      blocks_.at(address).live = true;
      return reinterpret_cast<void*>(address);
    }
    if (rounded > facts.largest_allocation || memory.live + rounded > facts.memory) {
      throw Failure(OPSMITH_OUT_OF_MEMORY,
                    std::to_string(bytes) + " bytes are asked for, " + std::to_string(memory.live) + " of " +
                        std::to_string(facts.memory) + " are in use, and one buffer can have " +
                        std::to_string(facts.largest_allocation));
    }
    if (memory.live + memory.kept + rounded > facts.memory) {
      release_kept(memory);
    }
    const cl_mem buffer = new_buffer(memory, rounded);
    const uintptr_t address = new_address(rounded);
    blocks_.emplace(address, Block{buffer, rounded, device, true});
    memory.live += rounded;
    return reinterpret_cast<void*>(address);
  }

  void release(int device, void* pointer) {
    const std::unique_lock lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == blocks_.end() || !found->second.live || found->second.device != device) {
      throw Failure(OPSMITH_INVALID_ARGUMENT,
                    "this address is not that of an allocation on device " + std::to_string(device));
    }
    DeviceMemory& memory = memories_[device];
    Block& block = found->second;
    block.live = false;
    memory.live -= block.bytes;
    memory.kept += block.bytes;
    memory.released[block.bytes].push_back(found->first);
    if (memory.kept > kMostKept) {
      release_kept(memory);
    }
  }

  uint64_t free_memory(int device) {
    const DeviceFacts& facts = device_facts(device);
    const std::shared_lock lock(mutex_);
    const auto found = memories_.find(device);
    const size_t live = found == memories_.end() ? 0 : found->second.live;
    return facts.memory - std::min<cl_ulong>(live, facts.memory);
  }

  Place place_of(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::shared_lock lock(mutex_);
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin() || (--found)->first + found->second.bytes < address || !found->second.live) {
      throw Failure(OPSMITH_INVALID_ARGUMENT, "this address is not in any device memory");
    }
    const size_t offset = address - found->first;
    return {found->second.buffer, offset, found->second.bytes - offset};
  }

 private:
  // Four sizes between two powers of two, so that what is released serves again.
  static size_t rounded_up(size_t bytes) {
    const size_t step = std::max(kAlignment, std::bit_floor(bytes) / 4);
    return (bytes + step - 1) / step * step;
  }

  cl_mem new_buffer(DeviceMemory& memory, size_t bytes) {
    cl_int error = kSuccess;
    cl_mem buffer = api().CreateBuffer(platform().context, kMemReadWrite, bytes, nullptr, &error);
    if (error != kSuccess && memory.kept != 0) {
      release_kept(memory);
      buffer = api().CreateBuffer(platform().context, kMemReadWrite, bytes, nullptr, &error);
    }
    check(error, "make a buffer");
    return buffer;
  }

  // Ranges do not touch, so an address one past the end belongs to the block before it.
  uintptr_t new_address(size_t bytes) {
    if (auto& same = free_ranges_[bytes]; !same.empty()) {
      const uintptr_t address = same.back();
      same.pop_back();
      return address;
    }
    if (next_ == 0) {
      void* const reserved =
          mmap(nullptr, kAddressSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (reserved == MAP_FAILED) {
        throw Failure(OPSMITH_FAILED, "no address space could be reserved");
      }
      next_ = reinterpret_cast<uintptr_t>(reserved);
      end_ = next_ + kAddressSpace;
    }
    if (end_ - next_ < bytes + kAlignment) {
      throw Failure(OPSMITH_OUT_OF_MEMORY, "the address space is used up");
    }
    const uintptr_t address = next_;
    next_ += bytes + kAlignment;
    return address;
  }

  void release_kept(DeviceMemory& memory) {
    for (auto& [bytes, addresses] : memory.released) {
      for (const uintptr_t address : addresses) {
        const auto block = blocks_.find(address);
        api().ReleaseMemObject(block->second.buffer);
        blocks_.erase(block);
        free_ranges_[bytes].push_back(address);
      }
      addresses.clear();
    }
    memory.kept = 0;
  }

  std::shared_mutex mutex_;
  std::map<uintptr_t, Block> blocks_;  // by address: live ones and kept ones
  std::unordered_map<int, DeviceMemory> memories_;
  std::unordered_map<size_t, std::vector<uintptr_t>> free_ranges_;  // by size
  uintptr_t next_ = 0;
  uintptr_t end_ = 0;
};

// Never destroyed: tensors may be released while the process ends.
Memory& memory() {
  static auto* const the_memory = new Memory;
  return *the_memory;
}

}  // namespace

void* allocate(int device, size_t bytes) {
  return memory().allocate(device, bytes);
}

void release(int device, void* pointer) {
  memory().release(device, pointer);
}

uint64_t free_memory(int device) {
  return memory().free_memory(device);
}

Place place_of(const void* pointer) {
  return memory().place_of(pointer);
}

}  // namespace opencl
