// Kernels of chip: each queues a program on the device and returns.
#include "chip.h"

#include <algorithm>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <opsmith/host_access.h>
#include <opsmith/unsupported.h>

namespace chip {

namespace {

template <class Arguments>
void launch(at::Device device, const char* program, const Arguments& arguments) {
  const opsmith_stream stream = opsmith::current_stream(device.index());
  const opsmith_status status = chip_launch(stream, program, &arguments, sizeof arguments);
  TORCH_CHECK(status == OPSMITH_OK, opsmith_get_driver()->last_error());
}

chip_matrix matrix(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.size(0), tensor.size(1), tensor.stride(0), tensor.stride(1)};
}

chip_operand operand(const at::TensorIteratorBase& iter, int i) {
  chip_operand made{};
  if (iter.is_cpu_scalar(i)) {  // x + 1: its address is the host's, its value can be read at once
    made.number = iter.tensor(i).item<float>();
    return made;
  }
  made.data = iter.data_ptr(i);
  for (int dim = 0; dim < iter.ndim(); ++dim) {
    made.strides[dim] = iter.strides(i)[dim] / iter.element_size(i);  // an iterator's are in bytes
  }
  return made;
}

void pointwise(const at::TensorIteratorBase& iter, const char* program, float alpha = 1) {
  if (iter.numel() == 0) {
    return;
  }
  if (iter.ndim() > CHIP_MAX_DIMS) {
    opsmith::unsupported("more than 8 dimensions that cannot be taken as one");
  }
  chip_pointwise arguments{};
  arguments.dims = iter.ndim();
  std::copy(iter.shape().begin(), iter.shape().end(), arguments.shape);
  arguments.out = operand(iter, 0);
  arguments.a = operand(iter, 1);
  arguments.b = operand(iter, 2);
  arguments.alpha = alpha;
  launch(iter.device(0), program, arguments);
}

}  // namespace

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  pointwise(iter, "add", alpha.to<float>());
}

void mul(at::TensorIteratorBase& iter) {
  pointwise(iter, "mul");
}

void mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  launch(out.device(), "matmul", chip_matmul{matrix(self), matrix(mat2), matrix(out)});
}

}  // namespace chip
