#include <bridge/lean_checks.h>

#include <bridge/lean_tensor.h>

#include <ATen/OpMathType.h>
#include <ATen/native/TypeProperties.h>

namespace opsmith {

namespace detail {

c10::ScalarType result_dtype_of(std::initializer_list<const at::Tensor*> tensors) {
  at::native::ResultTypeState state = {};
  for (const at::Tensor* tensor : tensors) {
    if (tensor != nullptr) {
      state = at::native::update_result_type_state(*tensor, state);
    }
  }
  return at::native::result_type(state);
}

c10::ScalarType scalar_dtype_of(std::initializer_list<const at::Tensor*> tensors) {
  return at::toOpMathType(result_dtype_of(tensors));
}

}  // namespace detail

bool has_dim_order(const at::Tensor& tensor, std::initializer_list<uint8_t> order) {
  if (tensor.dim() != static_cast<int64_t>(order.size())) {
    return false;
  }
  int64_t stride = 1;
  for (auto dim = order.end(); dim != order.begin();) {
    --dim;
    if (tensor.size(*dim) != 1 && tensor.stride(*dim) != stride) {
      return tensor.numel() == 0;
    }
    stride *= tensor.size(*dim);
  }
  return true;
}

}  // namespace opsmith
