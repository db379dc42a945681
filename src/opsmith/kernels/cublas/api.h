// The functions of cuBLAS that the kernels call, found in its library when they are first asked for. Types
// and numbers are NVIDIA's, the same in CUDA 12 and 13.
#pragma once

#include <cstdint>

namespace opsmith::cublas {

using Handle = struct cublasContext*;

constexpr int kSuccess = 0;
constexpr int kByRows = 0;         // CUBLAS_OP_N, of matrices in columns
constexpr int kTransposed = 1;     // CUBLAS_OP_T
constexpr int kAnyAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT

// cudaDataType_t
enum : int { kFloat32, kFloat64, kFloat16, kBfloat16 = 14 };

// cublasComputeType_t
constexpr int kInFloat32 = 68;
constexpr int kInFloat64 = 70;
constexpr int kInTf32 = 77;

struct Api {
  int (*Create)(Handle*) = nullptr;
  int (*SetStream)(Handle, void* stream) = nullptr;
  int (*Multiply)(Handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                  int type_a, int lda, long long stride_a, const void* b, int type_b, int ldb,
                  long long stride_b, const void* beta, void* c, int type_c, int ldc, long long stride_c,
                  int batches, int compute, int algorithm) = nullptr;
};

// Raises NotImplementedError where cuBLAS is missing. OPSMITH_CUBLAS_LIBRARY names the library; without it,
// it is the one of NVIDIA's wheels beside torch, or one that the system finds.
const Api& api();

}  // namespace opsmith::cublas
