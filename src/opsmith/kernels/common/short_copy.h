// Copies of few bytes.
#pragma once

#include <cstdint>
#include <cstring>

namespace opsmith {

// Like memcpy, whose call takes longer than a copy of some ten to some hundred bytes.
inline void copy_short(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kPart = 32, kMost = 512;
  if (bytes < kPart || bytes > kMost) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  // The last part overlaps the one before it.
  for (int64_t i = 0; i < bytes - kPart; i += kPart) {
    std::memcpy(to + i, from + i, kPart);
    asm volatile("" ::: "memory");  // else gcc makes a memcpy of the loop
  }
  std::memcpy(to + bytes - kPart, from + bytes - kPart, kPart);
}

}  // namespace opsmith
