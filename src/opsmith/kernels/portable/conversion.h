// Copies of elements between dtypes, chosen at run time: how operands of mixed dtypes and layouts become
// dense arrays of the type that a kernel calculates in, and how results leave it.
#pragma once

#include "../common/dtypes.h"

namespace opsmith::portable {

// Elements that are converted at a time, which the first cache holds.
inline constexpr int64_t kTile = 512;

// Where elements lie: `rows` rows of `columns` elements, with strides in elements.
struct Plane {
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;
};

// Copies a plane of elements at `from` to rows * columns elements at `to`, one after the other.
using Convert = void (*)(const void* from, const Plane& plane, void* to);

// The copy between the dtypes, equal ones too. Null where no program selected both.
Convert conversion(ScalarType from, ScalarType to);

// Writes the element of `element_size` bytes at `first` n - 1 times more, behind itself.
void repeat(size_t element_size, void* first, int64_t n);

// Copies n elements of `element_size` bytes at `from` to places `stride` elements apart.
void spread(size_t element_size, const void* from, void* to, int64_t stride, int64_t n);

}  // namespace opsmith::portable
