// The parts of derived.h that need not be inlined, and the refusal of mixed devices that call.h declares.
#include <opsmith/derived.h>

#include <opsmith/call.h>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>

namespace opsmith {

namespace detail {

void throw_mixed_devices(const char* operator_name, c10::Device device, const at::TensorBase& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              device, " and ", other.device(), "! (", operator_name, ", argument of shape ", other.sizes(),
              ")\n  remedy: move it with .to(\"", device, "\")");
}

}  // namespace detail

at::Tensor meta(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor result = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    result.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return result;
}

std::optional<at::Tensor> meta(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(meta(*tensor)) : std::nullopt;
}

std::vector<at::Tensor> meta(const at::ITensorListRef& tensors) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    result.push_back(meta(tensor));
  }
  return result;
}

c10::List<std::optional<at::Tensor>> meta(const c10::List<std::optional<at::Tensor>>& tensors) {
  c10::List<std::optional<at::Tensor>> result;
  result.reserve(tensors.size());
  for (const std::optional<at::Tensor>& tensor : tensors) {
    result.push_back(meta(tensor));
  }
  return result;
}

at::Tensor allocate_as(const at::Tensor& meta) {
  return empty_strided_fast(meta.sizes(), meta.strides(), meta.scalar_type(),
                            c10::Device(c10::kPrivateUse1, current_device()));
}

namespace {

void check_castable(const char* operator_name, at::ScalarType from, at::ScalarType to) {
  TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to,
              " (", operator_name, ")");
}

void check_shape(const char* operator_name, at::IntArrayRef result, at::IntArrayRef self) {
  TORCH_CHECK(result == self, "output with shape ", self, " doesn't match the broadcast shape ", result, " (",
              operator_name, ")");
}

}  // namespace

void write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out) {
  check_castable(operator_name, result.scalar_type(), out.scalar_type());
  if (result.device() != out.device()) {
    detail::throw_mixed_devices(operator_name, result.device(), out);
  }
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

void write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self) {
  check_inplace_result(operator_name, result, self);
  self.copy_(result);
}

void check_inplace_result(const char* operator_name, const at::Tensor& meta, const at::Tensor& self) {
  check_castable(operator_name, meta.scalar_type(), self.scalar_type());
  check_shape(operator_name, meta.sizes(), self.sizes());
  at::assert_no_internal_overlap(self);
}

void detail::check_overlap(const at::TensorBase& self, const at::TensorBase& operand) {
  if (!operand.is_same(self)) {
    at::assert_no_partial_overlap(self, operand);
  }
}

at::Tensor detail::result_in(const at::Tensor& out, const at::Tensor& meta, bool shares_memory) {
  if (out.scalar_type() != meta.scalar_type() || shares_memory) {
    return allocate_as(meta);
  }
  at::native::resize_output(out, meta.sizes());
  at::assert_no_internal_overlap(out);
  return out;
}

}  // namespace opsmith
