// The operators on at::Tensor that are products of matrices, by a library's own function for batches of them:
// multiply(a, b, out, alpha = 1, beta = 0, self = {}), out = alpha · a b + beta · self.
#pragma once

#include <ATen/core/Tensor.h>

#include "operand_dtypes.h"

#define OPSMITH_MATRIX_PRODUCTS                                                                              \
  void mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {                           \
    require_dtype(self.scalar_type(), mat2);                                                                 \
    multiply(self.unsqueeze(0), mat2.unsqueeze(0), out.unsqueeze(0));                                        \
  }                                                                                                          \
  void addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, \
             const at::Scalar& alpha, const at::Tensor& out) {                                               \
    multiply(mat1.unsqueeze(0), mat2.unsqueeze(0), out.unsqueeze(0), alpha, beta,                            \
             self.expand(out.sizes()).unsqueeze(0));                                                         \
  }                                                                                                          \
  void bmm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {                          \
    require_dtype(self.scalar_type(), mat2);                                                                 \
    multiply(self, mat2, out);                                                                               \
  }                                                                                                          \
  void baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,                   \
               const at::Scalar& beta, const at::Scalar& alpha, const at::Tensor& out) {                     \
    require_dtype(batch1.scalar_type(), batch2);                                                             \
    multiply(batch1, batch2, out, alpha, beta, self.expand(out.sizes()));                                    \
  }
