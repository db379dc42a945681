// Settings::debug: bytes around each block that nobody may write to, and freed blocks that nobody may touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/caching/blocks.h>
#include <opsmith/caching/settings.h>

namespace opsmith::caching {

// Blocks begin with front() bytes that are not the user's, and end with at least kTail such bytes. All of
// them hold kGuard while the block is allocated. New memory and freed memory hold kPoison: not-a-number in
// every floating-point type, -1 in integers.
class Guards {
 public:
  static constexpr size_t kTail = 64;
  static constexpr uint8_t kGuard = 0xA5;
  static constexpr uint8_t kPoison = 0xFF;

  Guards(DeviceMemory& memory, size_t front) : memory_(memory), front_(front) {}

  size_t front() const { return front_; }

  void arm(const Block& block) {
    const Stream stream = block.segment->stream;
    memory_.fill(block.data, kGuard, front_, stream);
    memory_.fill(user_data(block), kPoison, block.requested, stream);
    memory_.fill(end(block), kGuard, tail(block), stream);
  }

  // Reports what was written beside the user's bytes.
  void check_ends(const Block& block) {
    const Stream stream = block.segment->stream;
    if (const size_t at = first_other(block.data, kGuard, front_, stream); at < front_) {
      memory_.report(memory_of(block) + " was written to before its start, at byte -" +
                     std::to_string(front_ - at));
    }
    if (const size_t at = first_other(end(block), kGuard, tail(block), stream); at < tail(block)) {
      memory_.report(memory_of(block) + " was written to past its end, at byte " +
                     std::to_string(block.requested + at));
    }
  }

  void poison(const Block& block) {
    memory_.fill(user_data(block), kPoison, block.requested, block.segment->stream);
  }

  // Reports what was written since poison().
  void check_poison(const Block& block) {
    const size_t at = first_other(user_data(block), kPoison, block.requested, block.segment->stream);
    if (at < block.requested) {
      memory_.report(memory_of(block) + " was written to after it was freed, at byte " + std::to_string(at) +
                     ": by what had kept its address, or by work on a stream that nobody told it of "
                     "(Tensor.record_stream)");
    }
  }

 private:
  static constexpr size_t kChunk = size_t{64} << 10;

  char* user_data(const Block& block) const { return block.data + front_; }
  char* end(const Block& block) const { return user_data(block) + block.requested; }
  size_t tail(const Block& block) const { return block.size - front_ - block.requested; }

  static std::string memory_of(const Block& block) {
    return "memory of " + std::to_string(block.requested) + " bytes";
  }

  // The position of the first byte that is not `value`; `bytes` if there is none, or if it cannot be read.
  size_t first_other(const char* data, uint8_t value, size_t bytes, Stream stream) {
    std::vector<uint8_t> chunk(std::min(bytes, kChunk));
    for (size_t begin = 0; begin < bytes; begin += chunk.size()) {
      const size_t length = std::min(chunk.size(), bytes - begin);
      if (!memory_.read(chunk.data(), data + begin, length, stream)) {
        return bytes;
      }
      const auto last = chunk.begin() + static_cast<std::ptrdiff_t>(length);
      const auto other = std::find_if(chunk.begin(), last, [&](uint8_t byte) { return byte != value; });
      if (other != last) {
        return begin + static_cast<size_t>(other - chunk.begin());
      }
    }
    return bytes;
  }

  DeviceMemory& memory_;
  size_t front_;
};

// Freed blocks that are kept from use for a while, oldest first.
class Quarantine {
 public:
  static constexpr size_t kMostBytes = 64 * kMiB;

  // Returns those that leave for it.
  std::vector<Block*> admit(Block* block) {
    blocks_.push_back(block);
    bytes_ += block->size;
    return leave(kMostBytes);
  }

  std::vector<Block*> leave(size_t most_bytes) {
    std::vector<Block*> leaving;
    while (bytes_ > most_bytes) {
      leaving.push_back(blocks_.front());
      bytes_ -= blocks_.front()->size;
      blocks_.pop_front();
    }
    return leaving;
  }

 private:
  std::deque<Block*> blocks_;
  size_t bytes_ = 0;
};

}  // namespace opsmith::caching
