// The functions of simd/*.cpp, in the namespace OPSMITH_ISA; ../float_functions.h has them of each
// instruction set. No guard, since it is included once for each of them.
//
// All are plain functions of pointers and counts: shapes, dtypes, threads and errors are the callers'.
// `streamed`: the result is stored past the caches.

#include "../attention_operands.h"
#include "../convolution_operands.h"
#include "../float16.h"
#include "../matmul_operands.h"
#include "../packed_convolution_operands.h"
#include "../pool_operands.h"
#include "../winograd_operands.h"

namespace opsmith::optimized::OPSMITH_ISA {

// ---- unary.cpp: y[i] = f(x[i]); y may be x

#define OPSMITH_UNARY_FUNCTIONS(each)                                                                       \
  each(exp) each(relu) each(sigmoid) each(silu) each(tanh) each(gelu_erf) each(gelu_tanh) each(hardsigmoid) \
      each(hardswish)
#define OPSMITH_UNARY(name)                                                       \
  void name##_float(const float* x, float* y, int64_t n, bool streamed);          \
  void name##_bfloat16(const Bfloat16* x, Bfloat16* y, int64_t n, bool streamed); \
  void name##_float16(const Float16* x, Float16* y, int64_t n, bool streamed);
OPSMITH_UNARY_FUNCTIONS(OPSMITH_UNARY)
#undef OPSMITH_UNARY

// ---- binary.cpp: z may be x or y

#define OPSMITH_BINARY(T, suffix)                                                               \
  /* z = x + alpha·y */                                                                         \
  void add_##suffix(const T* x, const T* y, float alpha, T* z, int64_t n, bool streamed);       \
  /* z = x·y; without alpha, which is there to give both one type */                            \
  void mul_##suffix(const T* x, const T* y, float, T* z, int64_t n, bool streamed);             \
  /* z = x where y is above the threshold or NaN, else 0 */                                     \
  void above_##suffix(const T* x, const T* y, float threshold, T* z, int64_t n, bool streamed); \
  /* z = scale·x + shift */                                                                     \
  void affine_##suffix(const T* x, float scale, float shift, T* z, int64_t n, bool streamed);   \
  /* z = x, no less than low and no more than high; NaN stays */                                \
  void bound_##suffix(const T* x, float low, float high, T* z, int64_t n, bool streamed);
OPSMITH_BINARY(float, float)
OPSMITH_BINARY(Bfloat16, bfloat16)
OPSMITH_BINARY(Float16, float16)
#undef OPSMITH_BINARY
void narrow(const float* x, Bfloat16* y, int64_t n);
void narrow_float16(const float* x, Float16* y, int64_t n);
void widen_float16(const Float16* x, float* y, int64_t n);

// ---- reduction.cpp

// Adds the sum of each of many rows of n elements, which begin `stride` elements apart, to totals.
void sum_each_float(const float* x, int64_t rows, int64_t stride, int64_t n, double* totals);
void sum_each_bfloat16(const Bfloat16* x, int64_t rows, int64_t stride, int64_t n, double* totals);
void sum_each_float16(const Float16* x, int64_t rows, int64_t stride, int64_t n, double* totals);
// Adds each column's sum over the rows to totals; a row begins `stride` elements after the one before.
void sum_rows_float(const float* x, int64_t rows, int64_t stride, int64_t columns, double* totals);
void sum_rows_bfloat16(const Bfloat16* x, int64_t rows, int64_t stride, int64_t columns, double* totals);
void sum_rows_float16(const Float16* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

// ---- softmax.cpp: y may be x

#define OPSMITH_SOFTMAX(T, suffix)                                                                    \
  void softmax_##suffix(const T* x, T* y, int64_t n, bool streamed);                                  \
  void log_softmax_##suffix(const T* x, T* y, int64_t n, bool streamed);                              \
  /* Along the rows of n × columns, whose rows begin `stride` elements apart. */                      \
  void softmax_columns_##suffix(const T* x, T* y, int64_t n, int64_t stride, int64_t columns);        \
  void log_softmax_columns_##suffix(const T* x, T* y, int64_t n, int64_t stride, int64_t columns);    \
  /* From the results' gradients g and the results y; z may be either. */                             \
  void softmax_gradient_##suffix(const T* g, const T* y, T* z, int64_t n);                            \
  void log_softmax_gradient_##suffix(const T* g, const T* y, T* z, int64_t n);                        \
  void softmax_gradient_columns_##suffix(const T* g, const T* y, T* z, int64_t n, int64_t stride,     \
                                         int64_t columns);                                            \
  void log_softmax_gradient_columns_##suffix(const T* g, const T* y, T* z, int64_t n, int64_t stride, \
                                             int64_t columns);
OPSMITH_SOFTMAX(float, float)
OPSMITH_SOFTMAX(Bfloat16, bfloat16)
OPSMITH_SOFTMAX(Float16, float16)
#undef OPSMITH_SOFTMAX

// ---- norm.cpp: one row; weight and bias may be null

#define OPSMITH_NORM(T, W, suffix)                                                                        \
  void layer_norm_##suffix(const T* x, const W* weight, const W* bias, T* y, int64_t n, float eps,        \
                           float* mean, float* rstd, bool streamed);                                      \
  void rms_norm_##suffix(const T* x, const W* weight, T* y, int64_t n, float eps, bool streamed);         \
  /* From the result's gradient g: z is x's gradient, and weight's and bias's are added to; each may be   \
   * null. */                                                                                             \
  void layer_norm_gradient_##suffix(const T* g, const T* x, const W* weight, T* z, int64_t n, float mean, \
                                    float rstd, float* weight_sums, float* bias_sums);
OPSMITH_NORM(float, float, float)
OPSMITH_NORM(Bfloat16, Bfloat16, bfloat16)
OPSMITH_NORM(Bfloat16, float, bfloat16_float)
OPSMITH_NORM(Float16, Float16, float16)
OPSMITH_NORM(Float16, float, float16_float)
#undef OPSMITH_NORM

// ---- bias_gelu.cpp: y may be x

#define OPSMITH_BIAS_GELU(T, suffix)                                                      \
  void bias_gelu_erf_##suffix(const T* x, const T* bias, T* y, int64_t n, bool streamed); \
  void bias_gelu_tanh_##suffix(const T* x, const T* bias, T* y, int64_t n, bool streamed);
OPSMITH_BIAS_GELU(float, float)
OPSMITH_BIAS_GELU(Bfloat16, bfloat16)
OPSMITH_BIAS_GELU(Float16, float16)
#undef OPSMITH_BIAS_GELU

// ---- rope.cpp: of 2·pairs elements; y may be x

#define OPSMITH_ROPE(T, C, suffix)                                                        \
  void rope_halves_##suffix(const T* x, const C* cos, const C* sin, T* y, int64_t pairs); \
  void rope_neighbours_##suffix(const T* x, const C* cos, const C* sin, T* y, int64_t pairs);
OPSMITH_ROPE(float, float, float)
OPSMITH_ROPE(Bfloat16, Bfloat16, bfloat16)
OPSMITH_ROPE(Bfloat16, float, bfloat16_float)
OPSMITH_ROPE(Float16, Float16, float16)
OPSMITH_ROPE(Float16, float, float16_float)
#undef OPSMITH_ROPE

// ---- matmul.cpp

#define OPSMITH_MATMUL(T, suffix)                                                                         \
  /* Of the rows and panels between the bounds. */                                                        \
  void matmul_##suffix(const Matmul<T>& product, int64_t row_begin, int64_t row_end, int64_t panel_begin, \
                       int64_t panel_end);                                                                \
  /* Of all rows of a and the rows of b between the bounds. */                                            \
  void dots_##suffix(const Dots<T>& product, int64_t begin, int64_t end);                                 \
  /* The panels, one after the other, of b, whose element (k, j) lies at                                  \
     k·depth_stride + j·column_stride. */                                                               \
  void pack_##suffix(const T* b, int64_t depth_stride, int64_t column_stride, int64_t depth,              \
                     int64_t columns, T* panels);
OPSMITH_MATMUL(float, float)
OPSMITH_MATMUL(Bfloat16, bfloat16)
#undef OPSMITH_MATMUL
// Dot products of rows of float16, and panels of float32 from it; the other products of it are of float32.
void dots_float16(const Dots<Float16>& product, int64_t begin, int64_t end);
void pack_float16(const Float16* b, int64_t depth_stride, int64_t column_stride, int64_t depth,
                  int64_t columns, float* panels);
// A row of float32 by `count` panels of float16, `panel` elements apart.
void row_float16(const float* a, const Float16* panels, int64_t panel, int64_t depth, int64_t count,
                 float* sums);
// A panel of bfloat16 in the place of one of float32 that they were widened to.
void pair_panel(float* panel, int64_t depth);

// ---- attention.cpp

#define OPSMITH_ATTENTION(T, suffix)                        \
  void attention_##suffix(const AttentionForward<T>& head); \
  void attention_gradient_##suffix(const AttentionBackward<T>& head);
OPSMITH_ATTENTION(float, float)
OPSMITH_ATTENTION(Bfloat16, bfloat16)
OPSMITH_ATTENTION(Float16, float16)
#undef OPSMITH_ATTENTION

// ---- convolution.cpp

// Rows of a block, of bfloat16 widened to float32 or as pairs of two channels.
void copy_rows_float(const RowCopy<float>& rows);
void copy_rows_bfloat16(const RowCopy<Bfloat16>& rows);
void copy_pairs(const RowCopy<Bfloat16>& rows);
void copy_float(const float* from, float* to, int64_t n);
// Row k of `to` gets the runs' pixels, up to kPanel of them, offsets[k] further on in the block; `exactly`
// where it has no slack. What follows them up to kPanel is undefined.
void gather(const float* block, const int64_t* offsets, int64_t count, const Run* runs, int64_t run_count,
            float* to, int64_t pitch, bool exactly);
// Of units that are widened bfloat16, in a block with slack.
void gather_bfloat16(const float* block, const int64_t* offsets, int64_t count, const Run* runs,
                     int64_t run_count, Bfloat16* to, int64_t pitch);
void depthwise_float(const Depthwise<float>& sums);
void depthwise_bfloat16(const Depthwise<Bfloat16>& sums);
void depthwise_gradient(const DepthwiseGradient& sums);

// ---- winograd.cpp

// The kPoints transformed weights of kChannelsTogether channels, from [kPlaces][kChannelsTogether].
void winograd_weights(const float* weights, float* to, int64_t to_plane);
void winograd_source(const WinogradSource& row);
// False where a pixel is not finite.
bool winograd_result(const WinogradResult& row);

// ---- pool.cpp

void largest_float(const LargestOf<float>& of);
void largest_bfloat16(const LargestOf<Bfloat16>& of);
void largest_float16(const LargestOf<Float16>& of);

// ---- packed_convolution.cpp

void packed_convolution(const PackedPixels& pixels);
void packed_depthwise(const PackedPixels& pixels);  // each channel from its own

}  // namespace opsmith::optimized::OPSMITH_ISA
