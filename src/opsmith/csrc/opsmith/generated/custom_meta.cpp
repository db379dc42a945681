// The derived meta kernels of custom operators. See custom_meta.h.
#include <opsmith/generated/custom_meta.h>
#include <opsmith/generated/empty_meta_like.h>

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace opsmith {

namespace {

// Without the dispatcher where sizes are numbers.
at::Tensor like(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    return at::empty_like(tensor, tensor.options().dtype(dtype));
  }
  return empty_meta_like(tensor, dtype);
}

}  // namespace

at::Tensor meta_like(const at::Tensor& tensor) {
  return tensor.defined() ? like(tensor, tensor.scalar_type()) : tensor;
}

std::vector<at::Tensor> meta_like(at::TensorList tensors) {
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    results.push_back(meta_like(tensor));
  }
  return results;
}

at::Tensor meta_broadcast(at::TensorList operands) {
  TORCH_CHECK(!operands.empty(), "a pointwise operator was called without a Tensor");
  at::native::ResultTypeState state;
  c10::SymDimVector sizes(operands[0].sym_sizes());
  for (const at::Tensor& operand : operands) {
    state = at::native::update_result_type_state(operand, state);
    sizes = at::infer_size_symdimvector(sizes, operand.sym_sizes());
  }
  const at::ScalarType dtype = at::native::result_type(state);
  for (const at::Tensor& operand : operands) {
    if (operand.sym_sizes() == c10::SymIntArrayRef(sizes)) {
      return like(operand, dtype);
    }
  }
  return at::empty_symint(sizes, operands[0].options().dtype(dtype));
}

namespace {

void check_castable(const char* operator_name, const at::Tensor& result, const at::Tensor& target) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), target.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", target.scalar_type(), " (", operator_name, ")");
}

}  // namespace

void meta_write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out) {
  check_castable(operator_name, result, out);
  at::native::resize_output_symint(out, result.sym_sizes());
}

void meta_write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self) {
  check_castable(operator_name, result, self);
  TORCH_CHECK(result.sym_sizes() == self.sym_sizes(), "output with shape ", self.sym_sizes(),
              " doesn't match the broadcast shape ", result.sym_sizes(), " (", operator_name, ")");
}

}  // namespace opsmith
