// Matrix products of any strides, by the fitting one of simd's functions.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include <executorch/runtime/kernel/kernel_includes.h>

#include "../common/parallel.h"
#include "../common/temporary.h"
#include "bfloat16.h"
#include "float16.h"
#include "matmul_operands.h"

namespace opsmith::optimized {

// A matrix, or a batch of them. Strides are in elements.
template <class T>
struct Matrix {
  T* data;
  int64_t row;
  int64_t column;
  int64_t batch;
};

// c = alpha·a·b (+ bias of each column, or of float32 row_bias of each row) + beta·c, with c of rows ×
// columns and a sum over depth. c is not read where beta is 0.
template <class T>
struct Product {
  int64_t batches = 1;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  Matrix<const T> a;
  Matrix<const T> b;
  Matrix<T> c;
  const T* bias = nullptr;
  const T* row_bias = nullptr;
  float alpha = 1.0f;
  float beta = 0.0f;
  Temporary<T> copy = {};      // of a, where its depth was not contiguous
  Temporary<T> repeated = {};  // the bias, where it is one element for all columns
  const T* packed = nullptr;   // b's panels, where they are there already; b is not looked at then
  // Where b is packed: what is done to rows and columns of c that are finished, between these bounds.
  std::optional<FunctionRef<void(int64_t row, int64_t row_end, int64_t column, int64_t column_end)>> finish =
      std::nullopt;
};

// simd's functions of a dtype, null where no selected program multiplies matrices of it.
//
// float16 has no product of its own: but for dot products and single rows by packed panels, its operands are
// widened and multiplied as float32, in panels that are made while it goes.
template <class T>
struct ProductFunctions {
  using Element = T;
  using Multiplied = std::conditional_t<std::is_same_v<T, Float16>, float, T>;

  void (*matmul)(const Matmul<Multiplied>& product, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end);
  void (*dots)(const Dots<T>& product, int64_t begin, int64_t end);
  void (*pack)(const T* b, int64_t depth_stride, int64_t column_stride, int64_t depth, int64_t columns,
               Multiplied* panels);
  void (*row)(const float* a, const T* panels, int64_t panel, int64_t depth, int64_t count,
              float* sums) = nullptr;  // of float16 alone
};

// How many elements a panel has: its depth times kPanel, of bfloat16 with an even depth.
template <class T>
constexpr int64_t panel_size(int64_t depth) {
  return (std::is_same_v<T, Bfloat16> ? (depth + 1) / 2 * 2 : depth) * kPanel;
}

constexpr int64_t panels_of(int64_t columns) {
  return (columns + kPanel - 1) / kPanel;
}

// Whether rows of b are read where they lie: packing them would take longer than it saves.
template <class T>
bool reads_rows(const Product<T>& product);

extern template bool reads_rows(const Product<float>&);

// False where there was no memory for panels; the context then has failed.
template <class T>
bool multiply(executorch::runtime::KernelRuntimeContext& context, Product<T> product,
              const ProductFunctions<T>& with);

extern template bool multiply(executorch::runtime::KernelRuntimeContext&, Product<float>,
                              const ProductFunctions<float>&);
extern template bool multiply(executorch::runtime::KernelRuntimeContext&, Product<Bfloat16>,
                              const ProductFunctions<Bfloat16>&);
extern template bool multiply(executorch::runtime::KernelRuntimeContext&, Product<Float16>,
                              const ProductFunctions<Float16>&);

}  // namespace opsmith::optimized
