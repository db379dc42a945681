// How the result of a quantized sum is shaped, for PyTorch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace opsmith::quantized {

at::Tensor add_meta(const at::Tensor& a, double, int64_t, int64_t, int64_t, const at::Tensor& b, double,
                    int64_t, int64_t, int64_t, double, int64_t, int64_t, int64_t) {
  TORCH_CHECK(a.sym_sizes() == b.sym_sizes(), "quantized add: both operands have one shape, and they are ",
              a.sym_sizes(), " and ", b.sym_sizes());
  return at::empty_symint(a.sym_sizes(), a.options());
}

}  // namespace opsmith::quantized
