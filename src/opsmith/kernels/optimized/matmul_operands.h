// The operands of a matrix product, and the layout of packed ones. Plain data, since every instruction set's
// code has it.
//
// A packed B consists of panels of kPanel columns, the last filled up with zeros. Of float32 a panel holds
// [depth][kPanel] elements, of bfloat16 [⌈depth/2⌉][kPanel][2]: pairs of neighbours in depth, as VDPBF16PS
// takes them. The layout is the same for all instruction sets, so that a program may carry packed weights to
// another machine.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace opsmith::optimized {

constexpr int64_t kPanel = 16;

// c[i][j] = alpha · Σ a[i][k] b[k][j] + bias[j] + row_bias[i] + beta · c[i][j], where c is not read if
// beta is 0.
template <class T>
struct Matmul {
  const T* a;
  int64_t a_row;        // from a[i][k] to a[i + 1][k]
  int64_t a_depth = 1;  // from a[i][k] to a[i][k + 1]; of bfloat16 always 1
  const T* b;
  int64_t b_depth;  // from b[k][j] to b[k + 1][j]: kPanel if it is packed, of bfloat16 0 then
  int64_t b_panel;  // from a panel to the next
  T* c;
  int64_t c_row;
  const T* bias = nullptr;
  const T* row_bias = nullptr;  // of float32 alone
  int64_t columns;
  int64_t depth;
  float alpha = 1.0f;
  float beta = 0.0f;
  bool paired = false;    // the processor has VDPBF16PS
  float* sums = nullptr;  // of bfloat16: where c is put in float32, without bias, if it is not null
};

// The same of Σ a[i][k] b[j][k], with both operands' depth contiguous; results may lie in any way.
template <class T>
struct Dots {
  const T* a;
  int64_t a_row;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  int64_t c_column;
  const T* bias;  // of b's rows, or null
  int64_t rows;
  int64_t depth;
  float alpha;
  float beta;
  bool paired;  // the processor has VDPBF16PS
};

}  // namespace opsmith::optimized
