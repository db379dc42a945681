// cuBLAS's entries that the library `cublas` calls, on the stand-in of libcuda: a product is work of the
// stream.
#include <cstdint>

#include "../../../src/opsmith/kernels/cublas/api.h"
#include "elements.h"
#include "of_libcuda.h"

using namespace opsmith::cublas;
using namespace stand_in;

struct opsmith::cublas::cublasContext {
  void* stream = nullptr;
};

namespace {

struct Matrix {
  void* data;  // as the host sees it
  int op;
  int64_t step;
  int64_t batch;

  int64_t at(int64_t b, int64_t row, int64_t column) const {
    return b * batch + (op == kByRows ? row + column * step : column + row * step);
  }
};

struct Product {
  int type, m, n, k, batches;
  double alpha, beta;
  Matrix a, b, c;
};

template <class T>
void run(const Product& p) {
  const auto* const a = static_cast<const T*>(p.a.data);
  const auto* const b = static_cast<const T*>(p.b.data);
  auto* const c = static_cast<T*>(p.c.data);
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += number(a[p.a.at(batch, i, k)]) * number(b[p.b.at(batch, k, j)]);
        }
        T& to = c[p.c.at(batch, i, j)];
        put(p.alpha * sum + (p.beta == 0 ? 0 : p.beta * number(to)), to);
      }
    }
  }
}

void run_product(void* given) {
  const auto& p = *static_cast<const Product*>(given);  // kept: a captured stream runs it again
  p.type == kFloat32   ? run<float>(p)
  : p.type == kFloat64 ? run<double>(p)
  : p.type == kFloat16 ? run<Half>(p)
                       : run<Bfloat16>(p);
}

}  // namespace

extern "C" {

int cublasCreate_v2(Handle* handle) {
  *handle = new cublasContext;
  return kSuccess;
}

int cublasSetStream_v2(Handle handle, void* stream) {
  handle->stream = stream;
  return kSuccess;
}

int cublasGemmStridedBatchedEx(Handle handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                               const void* a, int type_a, int lda, long long stride_a, const void* b, int,
                               int ldb, long long stride_b, const void* beta, void* c, int, int ldc,
                               long long stride_c, int batches, int compute, int) {
  const int rows_a = op_a == kByRows ? m : k, rows_b = op_b == kByRows ? k : n;
  if (lda < rows_a || ldb < rows_b || ldc < m) {
    return 7;  // CUBLAS_STATUS_INVALID_VALUE
  }
  const auto value = [&](const void* from) {
    return compute == kInFloat64 ? *static_cast<const double*>(from) : *static_cast<const float*>(from);
  };
  return queue(handle->stream, run_product,
               new Product{type_a,
                           m,
                           n,
                           k,
                           batches,
                           value(alpha),
                           value(beta),
                           {view(a), op_a, lda, stride_a},
                           {view(b), op_b, ldb, stride_b},
                           {view(c), kByRows, ldc, stride_c}});
}

}  // extern "C"
