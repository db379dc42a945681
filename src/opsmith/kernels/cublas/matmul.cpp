// mm, addmm, bmm and baddbmm, by cuBLAS; linear is addmm.
#include <algorithm>
#include <limits>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include "../common/matrix_products.h"
#include "../common/nvidia_library.h"
#include "api.h"

namespace opsmith::cublas {
namespace {

constexpr nvidia::DataTypes kTypes{kFloat32, kFloat64, kFloat16, kBfloat16};

void check(int status, const char* action) {
  TORCH_CHECK(status == kSuccess, "cuBLAS cannot ", action, " (status ", status, ")");
}

// A batch of matrices as cuBLAS reads them: columns of the transposed ones are rows of these.
struct Matrices {
  at::Tensor tensor;
  int op;
  int64_t step;

  explicit Matrices(const at::Tensor& t) : tensor(t), op(kByRows), step(0) {
    if (!describe()) {
      tensor = t.contiguous();
      describe();
    }
  }

 private:
  // A matrix of one row, or one column, may have any stride there.
  bool describe() {
    const int64_t rows = tensor.size(1), columns = tensor.size(2);
    const int64_t row = tensor.stride(1), column = tensor.stride(2);
    const bool in_rows = (column == 1 || columns == 1) && (row >= columns || rows == 1);
    const bool in_columns = (row == 1 || rows == 1) && (column >= rows || columns == 1);
    op = in_rows ? kByRows : kTransposed;
    step = in_rows ? std::max(rows == 1 ? columns : row, int64_t{1})
                   : std::max(columns == 1 ? rows : column, int64_t{1});
    return in_rows || in_columns;
  }
};

int narrow(int64_t number) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      number <= std::numeric_limits<int>::max(), "a matrix has ", number,
      " elements from one row to the next, and cuBLAS counts to 2^31 - 1; use smaller "
      "ones, or leave the library `cublas` out of the description");
  return static_cast<int>(number);
}

// out = alpha · a b + beta · out, for batches; out has rows.
void multiply_rows(const Matrices& a, const Matrices& b, const Matrices& out, const at::Scalar& alpha,
                   const at::Scalar& beta) {
  const at::ScalarType dtype = out.tensor.scalar_type();
  const int type = kTypes.of(dtype);
  const bool is_double = dtype == at::kDouble;
  const int compute = is_double                                                      ? kInFloat64
                      : dtype == at::kFloat && at::globalContext().allowTF32CuBLAS() ? kInTf32
                                                                                     : kInFloat32;
  const double doubles[] = {alpha.toDouble(), beta.toDouble()};
  const float floats[] = {static_cast<float>(doubles[0]), static_cast<float>(doubles[1])};
  const void* const numbers[] = {is_double ? static_cast<const void*>(&doubles[0]) : &floats[0],
                                 is_double ? static_cast<const void*>(&doubles[1]) : &floats[1]};
  const Handle handle = nvidia::handle(api().Create, api().SetStream, out.tensor.device().index(), check);
  // cuBLAS has columns: outᵀ = bᵀ aᵀ.
  check(api().Multiply(handle, b.op, a.op, narrow(out.tensor.size(2)), narrow(out.tensor.size(1)),
                       narrow(a.tensor.size(2)), numbers[0], b.tensor.data_ptr(), type, narrow(b.step),
                       b.tensor.stride(0), a.tensor.data_ptr(), type, narrow(a.step), a.tensor.stride(0),
                       numbers[1], out.tensor.data_ptr(), type, narrow(out.step), out.tensor.stride(0),
                       narrow(out.tensor.size(0)), compute, kAnyAlgorithm),
        "multiply matrices");
}

// out = alpha · a b + beta · self, for batches of one dtype. Where beta is 0, self is not read.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Scalar& alpha = 1,
              const at::Scalar& beta = 0, const at::Tensor& self = {}) {
  if (out.numel() == 0) {
    return;
  }
  const bool adds = beta.toDouble() != 0.0;
  const bool in_place =
      self.defined() && self.data_ptr() == out.data_ptr() && self.strides() == out.strides();
  if (adds && !in_place) {
    out.copy_(self);
  }
  if (a.size(2) == 0) {
    adds ? out.mul_(beta) : out.zero_();
    return;
  }
  const Matrices result(out);
  if (result.op == kByRows) {
    multiply_rows(Matrices(a), Matrices(b), result, alpha, beta);
  } else {
    multiply_rows(Matrices(b.transpose(1, 2)), Matrices(a.transpose(1, 2)),
                  Matrices(result.tensor.transpose(1, 2)), alpha, beta);
  }
  if (result.tensor.data_ptr() != out.data_ptr()) {
    out.copy_(result.tensor);  // it has neither rows nor columns in memory
  }
}

}  // namespace

OPSMITH_MATRIX_PRODUCTS

}  // namespace opsmith::cublas
