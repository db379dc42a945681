// A structured operator whose meta function fills the result with an operand, as baddbmm's does with self,
// before the kernel runs.
#pragma once

#include <opsmith/generated/structured.h>
#include <opsmith/torch_version.h>

#include <ATen/native/Resize.h>

namespace opsmith {

// Has the interface of Structured, which shows a given Tensor of another size only as what it will be: that
// is to be looked at, and no memory to fill.
template <class Meta>
class FilledStructured final : public Meta {
 public:
  // `reads` are all Tensors that the kernel reads. Neither it nor the meta function writes to their memory;
  // but the given Tensor may be `filler`, which then is in its place already.
  template <class... Operands>
  FilledStructured(Given how, const at::Tensor& given, const at::Tensor& filler, const Operands&... reads)
      : given_(given),
        output_(how, given),
        apart_(!filler.is_same(given) && shares_storage(filler)),
        filled_(given) {
    ((apart_ |= shares_storage(reads)), ...);
  }

  void set_output_strided(int64_t /*index*/, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options OPSMITH_NAMES_PARAMETER) override {
    set(true, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t /*index*/, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options OPSMITH_NAMES_PARAMETER) override {
    set(false, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t /*index*/) override { return filled_; }

  const at::Tensor& announced(size_t /*index*/) const { return filled_; }
  const at::Tensor& result(size_t /*index*/) const { return filled_; }
  const at::Tensor& promised(size_t /*index*/) const { return filled_; }

  // For kernels that read the filler, too, and do not compute on what was filled.
  template <class... Operands>
  void keep_apart(Reads reads, const Operands&... operands) {
    if (!apart_) {
      (output_.keep_apart(reads, operands), ...);
      filled_ = output_.written();
    }
  }

  // As Structured's.
  void settle() const {
    if (at::native::resize_output(given_, filled_.sizes())) {
      given_.unsafeGetTensorImpl()->set_sizes_and_strides(filled_.sizes(), filled_.strides());
    }
  }

  void finish() {
    settle();
    if (apart_) {
      given_.copy_(filled_);
    } else {
      output_.finish();
    }
  }

 private:
  bool shares_storage(const at::TensorBase& operand) const {
    return operand.storage().is_alias_of(given_.storage());
  }

  void set(bool strided, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    output_.set(strided, /*at_once=*/false, sizes, strides, options);  // which checks what is given
    apart_ |= given_.sizes() != sizes;
    detail::Output stand_in;
    if (apart_) {
      stand_in.set(strided, /*at_once=*/false, sizes, strides, options);
    }
    filled_ = (apart_ ? stand_in : output_).written();
  }

  const at::Tensor& given_;
  detail::Output output_;
  bool apart_;         // `filled_` is memory of its own
  at::Tensor filled_;  // one object from the start: meta functions ask for it before they announce the result
};

}  // namespace opsmith
