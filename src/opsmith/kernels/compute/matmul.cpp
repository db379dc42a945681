// See matmul.h; and the operators that are products.
#include "matmul.h"

#include <algorithm>
#include <string>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>

#include "../common/matrix_products.h"
#include "definitions.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

constexpr const char* kProductForCpus =
#include "matmul_cpu.cl"
    ;
constexpr const char* kTiledProduct =
#include "matmul_tiled.cl"
    ;
// As in the sources: of the result's rows, and of its columns on a CPU and elsewhere.
constexpr int64_t kTileRows = 64;
constexpr int64_t kTileColumnsForCpus = 128;
constexpr int64_t kTileColumns = 64;
constexpr size_t kTileItems = 16;

// As in the sources.
struct MatrixStrides {
  int64_t batch = 0, row = 0, column = 0;
};
struct ProductShape {
  int64_t m, n, k;
  MatrixStrides a, b, addend, out;
};

MatrixStrides strides_of(const at::Tensor& matrices) {
  return {matrices.stride(0), matrices.stride(1), matrices.stride(2)};
}

}  // namespace

void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Scalar& alpha,
              const at::Scalar& beta, const at::Tensor& addend) {
  at::assert_no_internal_overlap(out);
  if (out.numel() == 0) {
    return;
  }
  const at::ScalarType dtype = a.scalar_type();
  const bool on_cpu = limits().is_cpu != 0;
  const bool adds = addend.defined() && !beta.equal(0);
  const std::string definitions =
      definition("DTYPE", dtype) + definition("OUT", out.scalar_type()) + definition_if(adds, "ADDEND") +
      definition_if(a.stride(2) == 1, "A_BY_ROWS") + definition_if(b.stride(2) == 1, "B_BY_ROWS") +
      definition_if(b.stride(2) != 1 && b.stride(1) == 1, "B_BY_COLUMNS");
  const ProductShape shape{.m = out.size(1),
                           .n = out.size(2),
                           .k = a.size(2),
                           .a = strides_of(a),
                           .b = strides_of(b),
                           .addend = adds ? strides_of(addend) : MatrixStrides{},
                           .out = strides_of(out)};
  Arguments arguments;
  arguments.tensor(a).tensor(b).tensor(adds ? addend : at::Tensor()).tensor(out).value(shape);
  add_number(arguments, checked(alpha, at::toOpMathType(dtype)), dtype);
  add_number(arguments, checked(beta, at::toOpMathType(dtype)), dtype);
  Grid grid;
  grid.groups = {static_cast<size_t>(ceil_div(shape.n, on_cpu ? kTileColumnsForCpus : kTileColumns)),
                 static_cast<size_t>(ceil_div(shape.m, kTileRows)), static_cast<size_t>(out.size(0))};
  if (!on_cpu) {
    grid.items = {kTileItems, kTileItems, 1};
  }
  launch("multiply matrices", kernel(on_cpu ? kProductForCpus : kTiledProduct, definitions), arguments, grid);
}

OPSMITH_MATRIX_PRODUCTS

}  // namespace opsmith::compute
