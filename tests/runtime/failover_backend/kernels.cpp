// Kernels for test_failing_over.py: what they do not refuse is one more than it should be, so that a result
// tells who computed it.
#include <opsmith/host_access.h>
#include <opsmith/unsupported.h>

#include <stdexcept>
#include <tuple>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

namespace chip {

namespace {

at::Tensor& fill(at::Tensor& out, at::IntArrayRef sizes, float value) {
  at::native::resize_output(out, sizes);
  float* elements = opsmith::host_data<float>(out);
  std::fill(elements, elements + out.numel(), value);
  return out;
}

}  // namespace

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (self.numel() > 4) {
    opsmith::unsupported("more than 4 elements");
  }
  return fill(out, self.sizes(), 1);
}

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  if (alpha.toDouble() != 1) {
    opsmith::unsupported("alpha is not 1");
  }
  fill(const_cast<at::Tensor&>(iter.tensor(0)), iter.tensor(0).sizes(), 1);
}

at::Tensor& sinh_out(const at::Tensor& self, at::Tensor& out) {
  if (self.dim() != 1) {
    opsmith::unsupported("only vectors");
  }
  return fill(out, self.sizes(), 1);
}

std::tuple<at::Tensor&, at::Tensor&> topk(const at::Tensor& self, int64_t k, int64_t dim, bool largest,
                                          bool sorted, at::Tensor& values, at::Tensor& indices) {
  opsmith::unsupported("it takes nothing today");
}

at::Tensor& cos_out(const at::Tensor& self, at::Tensor& out) {
  opsmith::unsupported("the table is full");
}

at::Tensor& sin_out(const at::Tensor& self, at::Tensor& out) {
  throw std::runtime_error("the unit is broken");
}

}  // namespace chip
