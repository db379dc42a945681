// Rows of few columns, which fill vectors badly: several that follow one another are taken for one.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

// Columns that rows are folded to, at most.
inline constexpr int64_t kMostFolded = 512;

// How many rows make one; 1: they stay as they are. Each begins `stride` elements after the one before.
constexpr int64_t folded_rows(int64_t rows, int64_t stride, int64_t columns) {
  constexpr int64_t kFolded = 16;
  return stride == columns && kFolded * columns < kMostFolded && rows >= 4 * kFolded ? kFolded : 1;
}

}  // namespace opsmith::optimized
