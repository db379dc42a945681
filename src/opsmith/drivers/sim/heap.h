// A sub-allocator over one device's range of addresses: two-level segregated free lists (TLSF) whose
// bookkeeping lies outside of the memory that it manages, so that a kernel that writes out of bounds cannot
// break it.
//
// Allocation and release take constant time. Addresses are offsets from the start of the range; the heap
// never touches the memory itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace sim {

class Heap {
 public:
  // Every block starts at a multiple of it and is a multiple of it long: one cache line, one AVX-512
  // register.
  static constexpr uint64_t kGranule = 64;

  struct Statistics {
    uint64_t allocations = 0;
    uint64_t releases = 0;
    uint64_t live_bytes = 0;
    uint64_t peak_bytes = 0;
    uint64_t kept_bytes = 0;
  };

  // `reserved` bytes of addresses, of which at most `limit` may be live at a time. Both multiples of
  // kGranule.
  Heap(uint64_t reserved, uint64_t limit);

  // The offset of a new block; nothing when the limit, or the range, has no room for it.
  std::optional<uint64_t> allocate(uint64_t bytes);

  // Ends the block that starts at `offset`; false when no live block does. For a block whose pages should go
  // back to the system, `give_back(offset, bytes)` is called, without the heap's lock, before the range can
  // be handed out again.
  bool release(uint64_t offset, void (*give_back)(void* context, uint64_t offset, uint64_t bytes),
               void* context);

  // The size of the live block that starts at `offset`, if one does.
  std::optional<uint64_t> live_bytes_at(uint64_t offset);

  struct Block;

  // Takes a range of at least `bytes` addresses for memory that comes from elsewhere: it counts neither as
  // live nor for the limit. nullptr when no range is long enough.
  Block* reserve(uint64_t bytes);
  void give_up(Block* reserved);
  static uint64_t offset_of(const Block* block);

  Statistics statistics();
  uint64_t limit() const { return limit_; }

 private:
  // Live blocks by offset: open addressing with linear probing; about 10 ns, which std::unordered_map is not.
  class LiveBlocks {
   public:
    LiveBlocks() : slots_(1024) {}
    void insert(Block* block);
    Block* find(uint64_t offset) const { return slots_[slot_of(offset)]; }
    Block* remove(uint64_t offset);

   private:
    size_t home_slot(uint64_t offset) const;
    size_t slot_of(uint64_t offset) const;  // of the block, or where it would be
    void grow();

    std::vector<Block*> slots_;
    size_t count_ = 0;
  };

  // Size classes: the power of two (first level) and which sixteenth of it (second level).
  static constexpr int kSecondLevelBits = 4;
  static constexpr int kSecondLevel = 1 << kSecondLevelBits;
  static constexpr int kFirstLevel = 40;

  struct SizeClass {
    int first;
    int second;
  };
  static SizeClass class_of(uint64_t granules);

  void link_free(Block* block);
  void unlink_free(Block* block);
  Block* take_fitting(uint64_t granules);
  Block* take(uint64_t bytes);
  void put_back(Block* block);
  static void absorb_after(Block* block);

  std::mutex mutex_;
  const uint64_t limit_;
  Statistics statistics_;
  LiveBlocks live_;
  uint64_t first_bits_ = 0;
  uint32_t second_bits_[kFirstLevel] = {};
  Block* free_[kFirstLevel][kSecondLevel] = {};
};

}  // namespace sim
