// As float_functions.h, the functions of moments.cpp, extremum.cpp, channel_norm.cpp and average.cpp. No
// guard, since it is included once for each instruction set.

#include <cstdint>

#include "../bfloat16.h"
#include "../float16.h"

namespace opsmith::optimized::OPSMITH_ISA {

// ---- extremum.cpp: see extremum_operands.h

#define OPSMITH_EXTREMUM(T, suffix, name)                                                                  \
  void name##_each_##suffix(const T* x, int64_t rows, int64_t stride, int64_t n, float* best);             \
  void name##_of_columns_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best); \
  void name##_places_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* best,      \
                              int32_t* rows_of_best);
#define OPSMITH_EXTREMA(T, suffix)      \
  OPSMITH_EXTREMUM(T, suffix, largest)  \
  OPSMITH_EXTREMUM(T, suffix, smallest) \
  int64_t first_place_##suffix(const T* x, int64_t n, float value);
OPSMITH_EXTREMA(float, float)
OPSMITH_EXTREMA(Bfloat16, bfloat16)
OPSMITH_EXTREMA(Float16, float16)
#undef OPSMITH_EXTREMA
#undef OPSMITH_EXTREMUM

// ---- moments.cpp: of few elements: see moments.h

#define OPSMITH_MOMENTS(T, suffix)                                                                          \
  /* The mean, and the sum of squared deviations from it, of each of many rows of n elements, which         \
     begin `stride` elements apart. */                                                                      \
  void moments_each_##suffix(const T* x, int64_t rows, int64_t stride, int64_t n, float* means,             \
                             float* squares);                                                               \
  /* The same of each column over the rows. */                                                              \
  void moments_of_columns_##suffix(const T* x, int64_t rows, int64_t stride, int64_t columns, float* means, \
                                   float* squares);
OPSMITH_MOMENTS(float, float)
OPSMITH_MOMENTS(Bfloat16, bfloat16)
OPSMITH_MOMENTS(Float16, float16)
#undef OPSMITH_MOMENTS

// ---- channel_norm.cpp

#define OPSMITH_CHANNEL_NORM(T, suffix)                                                                    \
  /* z = (x - center)·scale + shift; z may be x */                                                         \
  void standardize_##suffix(const T* x, float center, float scale, float shift, T* z, int64_t n,           \
                            bool streamed);                                                                \
  /* The same of rows one after the other, with numbers for each column. */                                \
  void standardize_rows_##suffix(const T* x, int64_t rows, int64_t columns, const float* centers,          \
                                 const float* scales, const float* shifts, T* z, bool streamed);           \
  /* The sums of g, and of g·(x - center). */                                                              \
  void gradient_sums_##suffix(const T* g, const T* x, int64_t n, float center, float* sum_of,              \
                              float* product_of);                                                          \
  /* The same of each column over the rows, which begin `stride` elements apart. */                        \
  void gradient_sums_of_columns_##suffix(const T* g, const T* x, int64_t rows, int64_t stride,             \
                                         int64_t columns, const float* centers, float* sums,               \
                                         float* products);                                                 \
  /* z = g·slope + (x - center)·along + shift */                                                           \
  void norm_gradient_##suffix(const T* g, const T* x, float center, float slope, float along, float shift, \
                              T* z, int64_t n, bool streamed);                                             \
  /* The same of rows one after the other, with numbers for each column. */                                \
  void norm_gradient_rows_##suffix(const T* g, const T* x, int64_t rows, int64_t columns,                  \
                                   const float* centers, const float* slopes, const float* alongs,         \
                                   const float* shifts, T* z);
OPSMITH_CHANNEL_NORM(float, float)
OPSMITH_CHANNEL_NORM(Bfloat16, bfloat16)
OPSMITH_CHANNEL_NORM(Float16, float16)
#undef OPSMITH_CHANNEL_NORM

// ---- average.cpp

#define OPSMITH_AVERAGE(T, suffix)                                                                           \
  /* result[i] is the sum of elements[k][i], divided. */                                                     \
  void averages_##suffix(const T* const* elements, int64_t number, int64_t count, float divisor, T* result); \
  void row_sums_##suffix(const T* const* rows, int64_t number, int64_t count, float* sums);                  \
  /* Of `width` neighbours in a row; the next result's lie `step` elements further on. */                    \
  void window_averages_##suffix(const float* row, int64_t width, int64_t step, int64_t count, float divisor, \
                                T* result);
OPSMITH_AVERAGE(float, float)
OPSMITH_AVERAGE(Bfloat16, bfloat16)
OPSMITH_AVERAGE(Float16, float16)
#undef OPSMITH_AVERAGE

}  // namespace opsmith::optimized::OPSMITH_ISA
