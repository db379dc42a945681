// mul as PyTorch's own devices have it: three classes over PyTorch's meta function, which allocate, resize or
// check in set_output_*() and then run one kernel.
#include "../lean.h"

#include <opsmith/device/empty.h>

#include <ATen/ops/mul_meta.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

namespace by_hand {

namespace {

using Meta = at::meta::structured_mul_Tensor;

void check_devices(const char* name, const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device() || other.dim() == 0, name, ": operands on two devices");
}

void run(at::TensorIteratorBase& iter) {
  // TensorIterator casts for no device but the CPU.
  TORCH_CHECK(iter.dtype(1) == iter.common_dtype() && iter.dtype(2) == iter.common_dtype(),
              "only operands of one dtype are taken");
  lean::mul(iter);
}

class Functional final : public Meta {
 public:
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    guard_.reset_device(options.device());
    const auto dtype = c10::typeMetaToScalarType(options.dtype());
    output_ = strides.empty() ? opsmith::empty_fast(sizes, dtype, options.device())
                              : opsmith::empty_strided_fast(sizes, strides, dtype, options.device());
    Meta::set_output_raw_strided(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return output_; }
  at::Tensor& output() { return output_; }

 private:
  at::Tensor output_;
  c10::OptionalDeviceGuard guard_;
};

class Out final : public Meta {
 public:
  explicit Out(at::Tensor& out) : out_(out) {}
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    guard_.reset_device(options.device());
    TORCH_CHECK(options.dtype() == out_.dtype() && options.device() == out_.device(), "out does not fit");
    if (at::native::resize_output(out_, sizes) && !strides.empty()) {
      out_.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    }
    Meta::set_output_raw_strided(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return out_; }

 private:
  at::Tensor& out_;
  c10::OptionalDeviceGuard guard_;
};

class Inplace final : public Meta {
 public:
  explicit Inplace(at::Tensor& self) : self_(self) {}
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    guard_.reset_device(options.device());
    TORCH_CHECK(
        options.dtype() == self_.dtype() && options.device() == self_.device() && sizes == self_.sizes(),
        "self does not fit");
    Meta::set_output_raw_strided(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t) override { return self_; }

 private:
  at::Tensor& self_;
  c10::OptionalDeviceGuard guard_;
};

}  // namespace

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  check_devices("mul", self, other);
  Functional op;
  op.meta(self, other);
  run(op);
  return std::move(op.output());
}

at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  check_devices("mul.out", self, other);
  Out op(out);
  op.meta(self, other);
  run(op);
  return out;
}

at::Tensor& mul_(at::Tensor& self, const at::Tensor& other) {
  check_devices("mul_", self, other);
  Inplace op(self);
  op.meta(self, other);
  run(op);
  return self;
}

}  // namespace by_hand
