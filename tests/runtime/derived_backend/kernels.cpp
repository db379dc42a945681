// Kernels for test_derived.py. Each runs ATen's CPU operator on the host's view of the device's memory,
// so that what is tested is the code around them.
#include "ChipFunctions.h"

#include <opsmith/host_access.h>

#include <ATen/Functions.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/sub_meta.h>

namespace chip {

namespace {

// The same elements as a CPU tensor. The caller of a kernel has waited for the device.
at::Tensor host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(opsmith::host_pointer(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

// A new tensor of the device with the elements of a CPU tensor.
at::Tensor to_device(const at::Tensor& result, const at::Tensor& like) {
  return result.to(like.device());
}

void write(const at::Tensor& result, const at::Tensor& out) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  host(out).copy_(result);
}

}  // namespace

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  write(at::mul(host(self), host(other)), out);
  return out;
}

at::Tensor& lt_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  write(at::lt(host(self), host(other)), out);
  return out;
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  write(at::addmm(host(self), host(mat1), host(mat2), beta, alpha), out);
  return out;
}

at::Tensor& cumsum_out(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype,
                       at::Tensor& out) {
  // Written as a scan that reads self while it writes out: wrong where they are one tensor.
  at::native::resize_output(out, self.sizes());
  host(out).zero_();
  host(out).copy_(at::cumsum(host(self), dim, dtype));
  return out;
}

std::tuple<at::Tensor&, at::Tensor&> topk(const at::Tensor& self, int64_t k, int64_t dim, bool largest,
                                          bool sorted, at::Tensor& values, at::Tensor& indices) {
  const auto [top, places] = at::topk(host(self), k, dim, largest, sorted);
  write(top, values);
  write(places, indices);
  return std::forward_as_tuple(values, indices);
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                      at::Tensor& out) {
  write(at::where(host(condition), host(self), host(other)), out);
  return out;
}

at::Tensor& logit_out(const at::Tensor& self, std::optional<double> eps, at::Tensor& out) {
  write(at::logit(host(self), eps), out);
  return out;
}

at::Tensor relu(const at::Tensor& self) {
  return to_device(at::relu(host(self)), self);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  return to_device(at::baddbmm(host(self), host(batch1), host(batch2), beta, alpha), self);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input,
                                                                 at::IntArrayRef normalized_shape,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 double eps) {
  const auto on_host = [](const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() ? std::optional<at::Tensor>(host(*tensor)) : std::nullopt;
  };
  const auto [output, mean, rstd] =
      at::native_layer_norm(host(input), normalized_shape, on_host(weight), on_host(bias), eps);
  return std::make_tuple(to_device(output, input), to_device(mean, input), to_device(rstd, input));
}

at::Tensor addcmul(const at::Tensor& self, const at::Tensor& tensor1, const at::Tensor& tensor2,
                   const at::Scalar& value) {
  at::Tensor result = at::chip::mul(tensor1, tensor2);
  at::chip::mul_(result, at::scalar_tensor(value, result.options().device(at::kCPU)));
  at::Tensor sum = at::empty({0}, result.options());
  at::chip::add_out(sum, self, result);
  return at::chip::add(sum, at::chip::fill(sum, 0));
}

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  host(self).fill_(value);
  return self;
}

at::Tensor& sigmoid_(at::Tensor& self) {
  host(self).sigmoid_();
  return self;
}

namespace {

// Runs `compute` on the operands of a structured kernel, which must have the promised dtypes.
template <class Compute>
void run(at::TensorIteratorBase& iter, const Compute& compute) {
  for (int index = 0; index < iter.ntensors(); ++index) {
    TORCH_CHECK(iter.dtype(index) == iter.common_dtype(), "operand ", index, " is ", iter.dtype(index),
                ", promised was ", iter.common_dtype());
  }
  host(iter.output()).copy_(compute());
}

}  // namespace

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  run(iter, [&] { return at::add(host(iter.input(0)), host(iter.input(1)), alpha); });
}

void tan(at::TensorIteratorBase& iter) {
  run(iter, [&] { return at::tan(host(iter.input(0))); });
}

void cos(at::TensorIteratorBase& iter) {
  run(iter, [&] { return at::cos(host(iter.input(0))); });
}

// With meta functions of their own: one that asks PyTorch's, one that does not.
void sub_meta(at::meta::structured_sub_Tensor& op, const at::Tensor& self, const at::Tensor& other,
              const at::Scalar& alpha) {
  TORCH_CHECK(self.dim() <= 2, "chip subtracts matrices at most, not tensors of ", self.dim(), " dimensions");
  op.meta(self, other, alpha);
}

void sub(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  run(iter, [&] { return at::sub(host(iter.input(0)), host(iter.input(1)), alpha); });
}

void mm_meta(at::meta::structured_mm& op, const at::Tensor& self, const at::Tensor& mat2) {
  TORCH_CHECK(self.size(1) == mat2.size(0), "chip multiplies matrices that fit");
  op.set_output_raw_strided(0, {self.size(0), mat2.size(1)}, {}, self.options());
}

void mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  host(out).copy_(at::mm(host(self), host(mat2)));
}

// The group computes the wrapped `dim` for its kernel.
at::meta::structured_max_dim::meta_return_ty max_dim_meta(at::meta::structured_max_dim& op,
                                                          const at::Tensor& self, int64_t dim, bool keepdim) {
  TORCH_CHECK(self.numel() > 0, "chip has no maximum of nothing");
  return op.meta(self, dim, keepdim);
}

void max_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& max,
             const at::Tensor& max_values) {
  TORCH_CHECK(dim >= 0, "the meta function wraps dim");
  const auto [values, indices] = at::max(host(self), dim, keepdim);
  host(max).copy_(values);
  host(max_values).copy_(indices);
}

// Casts by itself: must get the operands, of two dtypes, as the caller gave them.
void maximum(at::TensorIteratorBase& iter) {
  TORCH_CHECK(iter.dtype(1) != iter.dtype(2), "the operands were cast");
  host(iter.output()).copy_(at::maximum(host(iter.input(0)), host(iter.input(1))));
}

}  // namespace chip
