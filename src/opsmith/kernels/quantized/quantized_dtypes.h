// The dtypes of this library: which integers hold quantized values, what they range over, and conversions of
// blocks of elements between tensors and the types that kernels calculate in.
#pragma once

#include "../common/dtypes.h"
#include "../common/resize.h"

#include <cstdint>

namespace opsmith::quantized {

// Elements are converted so many at a time, which the first cache holds.
inline constexpr int64_t kBlock = 2048;

// A dtype of quantized values; bits == 0: it is none.
struct Integers {
  int bits;
  int64_t least, greatest;
};

constexpr Integers integers_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Byte:
      return {8, 0, 255};
    case ScalarType::Char:
      return {8, -128, 127};
    case ScalarType::UInt16:
      return {16, 0, 65535};
    case ScalarType::Short:
      return {16, -32768, 32767};
    case ScalarType::Int:
      return {32, INT32_MIN, INT32_MAX};
    default:
      return {0, 0, 0};
  }
}

// Whether the library is compiled for tensors of the dtype. Every switch by a dtype asks this or, of an
// operator, opsmith::selected, so that a selective build has no code for what its programs do not use.
template <ScalarType Dtype>
inline constexpr bool kIsUsed = ::opsmith::selected("", Dtype);

// `n` floats of the tensor's elements from `begin`, in memory's order: those themselves or, converted,
// `block`. The tensor is Float, Double, Half or BFloat16.
const float* floats(const Tensor& tensor, int64_t begin, int64_t n, float* block);

// The same of a tensor of integers_of.
const int32_t* integers(const Tensor& tensor, int64_t begin, int64_t n, int32_t* block);

// Where to put `n` results for `begin` on, and putting them there, of a tensor of integers_of.
int32_t* place_for(const Tensor& out, int64_t begin, int32_t* block);
void put(const Tensor& out, int64_t begin, int64_t n, const int32_t* from);

// Puts `n` results for `begin` on into a tensor of floats of any width. Half and BFloat16 are rounded from
// float.
void put_floats(const Tensor& out, int64_t begin, int64_t n, const float* from);
void put_floats(const Tensor& out, int64_t begin, int64_t n, const double* from);

// `value` as an element of the dtype, Float, Half or BFloat16, is.
float rounded(float value, ScalarType dtype);

// The element `index`, in memory's order, of a tensor of any dtype of numbers, as a double and as an integer.
double number_at(const Tensor& tensor, int64_t index);
int64_t integer_at(const Tensor& tensor, int64_t index);

// ---- what all kernels check; false: the call has been rejected

// That values of the dtype `dtype`, in quant_min…quant_max, can be made.
bool check_range(KernelRuntimeContext& context, const char* name, int64_t quant_min, int64_t quant_max,
                 ScalarType dtype);
bool check_dtype(KernelRuntimeContext& context, const char* name, const char* argument, const Tensor& tensor,
                 ScalarType wanted);
// That scales or zero points, given as a tensor, are of a dtype that number_at reads.
bool check_numbers(KernelRuntimeContext& context, const char* name, const char* argument,
                   const Tensor& tensor);
// That a scale or zero point, given as a tensor, is one element, which is such a number.
bool check_one(KernelRuntimeContext& context, const char* name, const char* argument, const Tensor& tensor);
// That `out` is shaped, or can be made, as `like`, with its elements in the same order.
bool resize_as(KernelRuntimeContext& context, const char* name, const Tensor& like, Tensor& out);

}  // namespace opsmith::quantized
