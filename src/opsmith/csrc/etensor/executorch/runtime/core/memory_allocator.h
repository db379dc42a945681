// MemoryAllocator: where a kernel's temporary memory comes from. On a PyTorch device the bridge has one.
#pragma once

#include <cstddef>
#include <cstdint>

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/assert.h>

namespace executorch::runtime {

// Hands out its memory from the beginning on, without taking anything back.
class MemoryAllocator {
 public:
  static constexpr size_t kDefaultAlignment = alignof(void*);

  MemoryAllocator(uint32_t size, uint8_t* base) : base_(base), size_(size) {
    ET_CHECK_MSG(base != nullptr || size == 0, "no memory is given, and %" PRIu32 " bytes are promised",
                 size);
  }
  virtual ~MemoryAllocator() = default;

  // Null where there is not so much.
  virtual void* allocate(size_t size, size_t alignment = kDefaultAlignment) {
    if (base_ == nullptr || alignment == 0 || (alignment & (alignment - 1)) != 0) {
      ET_LOG(Error, "an allocator without memory, or the alignment %zu", alignment);
      return nullptr;
    }
    const uintptr_t next = reinterpret_cast<uintptr_t>(base_ + used_);
    const size_t padding = static_cast<size_t>(-next & (alignment - 1));
    if (padding > free_size() || size > free_size() - padding) {
      ET_LOG(Error, "%zu bytes are asked for, and %zu are free", size, free_size());
      return nullptr;
    }
    used_ += padding + size;
    return base_ + used_ - size;
  }
  template <class T>
  T* allocateInstance(size_t alignment = alignof(T)) {
    return static_cast<T*>(allocate(sizeof(T), alignment));
  }
  template <class T>
  T* allocateList(size_t count, size_t alignment = alignof(T)) {
    return count > SIZE_MAX / sizeof(T) ? nullptr : static_cast<T*>(allocate(count * sizeof(T), alignment));
  }

  virtual uint8_t* base_address() const { return base_; }
  virtual uint32_t size() const { return size_; }
  virtual size_t used_size() const { return used_; }
  virtual size_t free_size() const { return size_ - used_; }
  virtual void reset() { used_ = 0; }

 private:
  uint8_t* base_;
  uint32_t size_;
  size_t used_ = 0;
};

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::MemoryAllocator;
}  // namespace torch::executor
