// The functions of simd/extremum.cpp, by what they look for. Plain types, since every instruction set's code
// has them.
#pragma once

#include <cstdint>

namespace opsmith::optimized {

// best[row] becomes the extremum of it and of the row's n elements.
template <class T>
using ExtremumEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, float* best);
// The same of columns over rows.
template <class T>
using ExtremumOfColumns = void(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best);
// Of at most 2^24 rows, and which of them has it.
template <class T>
using PlacesOfColumns = void(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best,
                             int32_t* rows_of_best);
// Where the value first stands among n elements, of which it is one; NaN is any NaN.
template <class T>
using FirstPlace = int64_t(const T* x, int64_t n, float value);

}  // namespace opsmith::optimized
