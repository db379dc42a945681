// Functions of tvm-ffi's for the host, as host.yaml names them: contiguous float32 in, destination last.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include <algorithm>
#include <cmath>

namespace {

namespace ffi = tvm::ffi;
using ffi::TensorView;

float* floats(const TensorView& tensor) {
  TVM_FFI_CHECK(tensor.device().device_type == kDLCPU, ValueError) << "the memory is not the host's";
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << "there are gaps";
  return static_cast<float*>(tensor.data_ptr());
}

void add(TensorView self, TensorView other, TensorView out) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    floats(out)[i] = floats(self)[i] + floats(other)[i];
  }
}

void softmax(TensorView self, int64_t dim, bool half_to_float, TensorView out) {
  TVM_FFI_CHECK(!half_to_float && dim == self.ndim() - 1, ValueError)
      << "softmax of rows, not of dim " << dim;
  const int64_t columns = self.shape()[dim];
  for (int64_t row = 0; row < self.numel() / columns; ++row) {
    const float* from = floats(self) + row * columns;
    float* to = floats(out) + row * columns;
    float sum = 0;
    for (int64_t i = 0; i < columns; ++i) {
      sum += to[i] = std::exp(from[i] - *std::max_element(from, from + columns));
    }
    std::for_each(to, to + columns, [sum](float& each) { each /= sum; });
  }
}

void clamp(TensorView self, ffi::Optional<double> min, ffi::Optional<double> max, TensorView out) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    const auto value = static_cast<double>(floats(self)[i]);
    const double above = min.has_value() ? std::max(value, *min) : value;
    floats(out)[i] = static_cast<float>(max.has_value() ? std::min(above, *max) : above);
  }
}

void flip(TensorView self, ffi::Array<int64_t> dims, TensorView out) {
  TVM_FFI_CHECK(self.ndim() == 1 && dims.size() == 1, ValueError) << "flips vectors";
  std::reverse_copy(floats(self), floats(self) + self.numel(), floats(out));
}

void cat(ffi::Array<ffi::Tensor> tensors, int64_t dim, TensorView out) {
  TVM_FFI_CHECK(dim == 0, ValueError) << "along dim 0";
  float* to = floats(out);
  for (const ffi::Tensor& tensor : tensors) {
    to = std::copy_n(floats(tensor), tensor.numel(), to);
  }
}

// Where the memory is.
void address(TensorView self, TensorView out) {
  static_cast<int64_t*>(out.data_ptr())[0] = reinterpret_cast<int64_t>(self.data_ptr());
}

void unwilling(TensorView, TensorView) {
  TVM_FFI_THROW(RuntimeError) << "the unit is busy";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, softmax)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(clamp, clamp)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flip, flip)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cat, cat)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(address, address)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(unwilling, unwilling)
