// Kernels that move elements and calculate nothing: cat, where, fill, zero, masked_fill. They work on bytes
// of the element's width, so every dtype is served by five versions.
#include <opsmith/host_access.h>
#include <opsmith/pointwise.h>

#include <array>
#include <cstring>

#include <ATen/WrapDimUtils.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/result_type.h>

namespace opsmith::hosted {
namespace {

// An element as so many bytes: complex double is the widest.
struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// Calls f.operator()<U>() with the unsigned type that is as wide as the elements.
template <class F>
void with_width(const at::TensorBase& tensor, const F& f) {
  switch (tensor.element_size()) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    case 16:
      return f.template operator()<Bytes16>();
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "Elements of ", tensor.element_size(), " bytes (",
                                  tensor.scalar_type(), ") are not supported on ", tensor.device(),
                                  ". Convert the tensor first");
  }
}

// `value` as one element of the tensor's dtype; overflow raises.
template <class U>
U element_of(const at::TensorBase& tensor, const at::Scalar& value) {
  const at::Tensor element = at::detail::scalar_tensor_static(value, tensor.scalar_type(), at::kCPU);
  U bytes;
  std::memcpy(&bytes, element.const_data_ptr(), sizeof(U));
  return bytes;
}

}  // namespace

at::Tensor& fill_scalar_(at::Tensor& self, const at::Scalar& value) {
  auto iter = at::TensorIterator::borrowing_nullary_op(self);
  with_width(self, [&]<class U>() {
    pointwise<U()>(iter, [element = element_of<U>(self, value)] { return element; });
  });
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  if (self.is_non_overlapping_and_dense()) {
    if (self.numel() != 0) {
      std::memset(host_pointer(self.data_ptr()), 0, self.nbytes());
    }
    return self;
  }
  return fill_scalar_(self, 0);
}

at::Tensor& masked_fill_scalar_(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  TORCH_CHECK(mask.device() == self.device() || mask.dim() == 0,
              "expected self and mask to be on the same device, but got mask on ", mask.device(),
              " and self on ", self.device(), ". Move the mask with mask.to(self.device)");
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ", mask.scalar_type());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, mask);
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)  // checked above: self is read and written
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .add_const_input(self)
                  .add_const_input(mask)
                  .build();
  with_width(self, [&]<class U>() {
    pointwise<U(U, bool)>(
        iter, [element = element_of<U>(self, value)](U old, bool chosen) { return chosen ? element : old; });
  });
  return self;
}

namespace {

// ATen's where takes a condition of Bool or (deprecated) Byte, promotes the other two, and accepts 0-dim CPU
// tensors for any of the three. An undefined `out` is allocated, another resized: returns it.
at::Tensor where_into(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                      const at::Tensor& out) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const bool alike = self.scalar_type() == other.scalar_type();
  const at::ScalarType dtype = alike ? self.scalar_type() : at::result_type(self, other);
  TORCH_CHECK(!out.defined() || out.scalar_type() == dtype, "Expected out type to be ", dtype, " but got ",
              out.scalar_type());
  const auto promoted = [&](const at::Tensor& t) { return t.scalar_type() == dtype ? t : t.to(dtype); };
  const at::Tensor chosen = promoted(self);
  const at::Tensor otherwise = promoted(other);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .allow_cpu_scalars(true)
                  .declare_static_dtype(dtype)
                  .add_output(out)
                  .add_const_input(condition)
                  .add_const_input(chosen)
                  .add_const_input(otherwise)
                  .build();
  if (!alike) {
    wait_for_device(iter.device(0).index());  // the conversions are queued on the device's stream
  }
  with_width(iter.output(),
             [&]<class U>() { pointwise<U(bool, U, U)>(iter, [](bool c, U a, U b) { return c ? a : b; }); });
  return iter.output();
}

}  // namespace

at::Tensor where_self(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  return where_into(condition, self, other, {});
}

at::Tensor& where_self_out(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                           at::Tensor& out) {
  where_into(condition, self, other, out);
  return out;
}

void cat(const at::ITensorListRef& tensors, int64_t dim, int64_t, bool, bool, bool, at::MemoryFormat,
         const at::Tensor& out) {
  // Legacy: 1-D tensors without elements may stand among tensors of any rank.
  const auto counts = [](const at::Tensor& t) { return !(t.dim() == 1 && t.size(0) == 0); };
  if (out.numel() == 0) {
    return;
  }
  const int64_t d = at::maybe_wrap_dim(dim, out.dim());
  const bool dense = out.is_contiguous();
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!counts(tensor)) {
      continue;
    }
    const int64_t length = tensor.size(d);
    if (dense && tensor.is_contiguous() && tensor.scalar_type() == out.scalar_type()) {
      // Pieces of memory as long as the joined dimension and those within it.
      const int64_t bytes = length * out.stride(d) * out.element_size();
      const int64_t step = out.size(d) * out.stride(d) * out.element_size();
      char* to =
          static_cast<char*>(host_pointer(out.data_ptr())) + start * out.stride(d) * out.element_size();
      const char* from = static_cast<const char*>(host_pointer(tensor.const_data_ptr()));
      for (int64_t left = tensor.numel() == 0 ? 0 : out.numel() * out.element_size() / step; left > 0;
           --left) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
        to += step;
        from += bytes;
      }
      start += length;
      continue;
    }
    at::Tensor part = out.narrow(d, start, length);
    start += length;
    if (tensor.scalar_type() != out.scalar_type()) {
      part.copy_(tensor);  // converts
      continue;
    }
    auto iter = at::TensorIteratorConfig()
                    .set_check_mem_overlap(false)  // ATen's meta has checked `out` against every operand
                    .resize_outputs(false)
                    .add_output(part)
                    .add_const_input(tensor)
                    .build();
    with_width(out, [&]<class U>() { pointwise<U(U)>(iter, [](U element) { return element; }); });
  }
}

}  // namespace opsmith::hosted
