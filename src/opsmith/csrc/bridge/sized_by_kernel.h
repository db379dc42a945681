// Results whose shape depends on the operands' elements: memory is allocated when the kernel resizes them.
#pragma once

#include <bridge/lean_call.h>
#include <lean/unsized.h>

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Device.h>

namespace opsmith {

// Passed to lean_call() in the place of `out`.
class SizedByKernel {
 public:
  // `meta` has the result's rank and dtype, and the order of its strides; `device` is where the kernel finds
  // its operands' elements.
  SizedByKernel(at::Tensor meta, c10::Device device) : meta_(std::move(meta)), device_(device) {}

  const at::Tensor& meta() const { return meta_; }

  // For the kernel.
  at::Tensor& allocate(at::IntArrayRef sizes) const {
    return tensor_ = at::empty(sizes, at::device(device_).dtype(meta_.scalar_type()));
  }

  // The result, on the device of the call. A kernel that does not resize gives one of meta's sizes.
  at::Tensor result() const {
    const at::Tensor& made = tensor_.defined() ? tensor_ : allocate(meta_.sizes());
    at::DimVector order(made.dim());
    std::iota(order.rbegin(), order.rend(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return meta_.stride(a) < meta_.stride(b); });
    at::DimVector strides(made.dim());
    int64_t stride = 1;
    for (const int64_t dim : order) {
      strides[dim] = stride;
      stride *= made.size(dim);
    }
    if (made.device() == lean_device() && at::IntArrayRef(strides) == made.strides()) {
      return made;
    }
    return at::empty_strided(made.sizes(), strides, made.options().device(lean_device())).copy_(made);
  }

 private:
  at::Tensor meta_;
  c10::Device device_;
  mutable at::Tensor tensor_;
};

namespace detail {

template <>
struct LeanArgument<lean::Tensor&, SizedByKernel> : LeanInput, Unsized {
  LeanArgument(const LeanCall& call, const SizedByKernel& given) : call_(call), given_(given) {
    describe_contiguous(given.meta().sizes());
    bind(given.meta().scalar_type(), given.meta().dim(), nullptr);
    stand_for(&*impl_);
  }

  void* allocate(const int32_t* sizes) override {
    const at::DimVector wide(sizes, sizes + given_.meta().dim());
    void* const made = given_.allocate(wide).mutable_data_ptr();
    return call_.elements == Elements::kOnHost ? host_pointer(made) : made;
  }

  lean::Tensor& get() { return *tensor_; }
  void finish() {}

 private:
  const LeanCall& call_;
  const SizedByKernel& given_;
};

}  // namespace detail
}  // namespace opsmith
