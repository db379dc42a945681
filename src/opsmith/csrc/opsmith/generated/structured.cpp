// The parts of structured.h that need not be inlined: allocation, the contracts of `out=` and in-place, and
// the cast to the common dtype.
#include <opsmith/generated/structured.h>

#include <opsmith/device/empty.h>
#include <opsmith/generated/derived.h>

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>

namespace opsmith::detail {

namespace {

at::Tensor allocate(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  const c10::Device device = options.device();
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if (strides.empty() &&
      options.memory_format_opt().value_or(at::MemoryFormat::Contiguous) == at::MemoryFormat::Contiguous) {
    return empty_fast(sizes, dtype, device);
  }
  if (strides.empty()) {
    return empty(sizes, dtype, at::kStrided, device, false, options.memory_format_opt());
  }
  return empty_strided_fast(sizes, strides, dtype, device);
}

// The contract of `out=`: dtype and device must be the result's.
void check_out(const at::Tensor& out, const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(),
              ", but got ", out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(),
              ", but got ", out.device(), " instead");
}

// Another size is resized, with PyTorch's warning.
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options) {
  if (!at::native::resize_output(out, sizes)) {
    return;
  }
  if (!strides.empty()) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else if (const auto format = options.memory_format_opt()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
}

// The contract of an in-place operator: sizes, dtype and device of `self` must be the result's.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
              " and output tensor size ", sizes, " should match");
}

}  // namespace

void Output::set(bool strided, bool at_once, at::IntArrayRef sizes, at::IntArrayRef strides,
                 const at::TensorOptions& options) {
  if (given_ == nullptr) {
    written_ = allocate(sizes, strides, options);
    return;
  }
  if (how_ == Given::kInplace) {
    check_inplace(*given_, sizes, options);
  } else {
    check_out(*given_, options);
    if (!at_once && given_->sizes() != sizes && !(given_->dim() == 1 && given_->numel() == 0)) {
      // It may be an operand, too, and is resized when the kernel has read that.
      written_ = as_resized(*given_, sizes);
      if (!strides.empty()) {
        written_.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
      } else if (const auto format = options.memory_format_opt()) {
        written_.unsafeGetTensorImpl()->empty_tensor_restride(*format);
      }
      options_ = options;
      return;
    }
    resize_out(*given_, sizes, strides, options);
  }
  if (strided && given_->strides() != strides) {
    written_ = allocate(sizes, strides, options);
  }
}

void Output::allocate_announced() {
  written_ = allocate(written_.sizes(), written_.strides(), *options_);
  options_.reset();
}

void Output::promote(at::ScalarType common) {
  const at::Tensor& out = written();
  if (C10_UNLIKELY(!has_promised_dtype(out.scalar_type(), common))) {
    written_ = empty_strided_fast(out.sizes(), out.strides(), common, out.device());
  }
}

void Output::stand_in_for(Reads reads, const at::TensorBase& operand) {
  const at::Tensor& out = *given_;
  const bool same_elements =
      operand.is_same(out) ||
      (operand.const_data_ptr() == out.const_data_ptr() && operand.scalar_type() == out.scalar_type() &&
       operand.sizes() == out.sizes() && operand.strides() == out.strides());
  if (reads == Reads::kAnywhere || !same_elements) {
    written_ = empty_strided_fast(out.sizes(), out.strides(), out.scalar_type(), out.device());
  }
}

void Output::settle() const {
  if (given_->sizes() != written_.sizes()) {
    at::native::resize_output(*given_, written_.sizes());
    given_->unsafeGetTensorImpl()->set_sizes_and_strides(written_.sizes(), written_.strides());
  }
}

void Output::copy_back() const {
  settle();
  given_->copy_(written_);
}

bool has_promised_dtypes(const at::TensorIteratorBase& iter) {
  const auto common = common_dtype_of(iter);
  if (!common.has_value()) {
    return true;
  }
  for (int index = iter.noutputs(); index < iter.ntensors(); ++index) {
    if (iter.dtype(index) != *common) {
      return false;
    }
  }
  for (int index = 0; index < iter.noutputs(); ++index) {
    if (!has_promised_dtype(iter.dtype(index), *common)) {
      return false;
    }
  }
  return true;
}

// A second iterator over cast operands: the shape was settled by the first, so nothing is resized or checked
// again.
void run_promoted(at::TensorIteratorBase& iter, c10::function_ref<void(at::TensorIteratorBase&)> kernel) {
  const at::ScalarType common = iter.common_dtype();
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .resize_outputs(false)
      .promote_inputs_to_common_dtype(true);
  for (int index = 0; index < iter.noutputs(); ++index) {
    const at::Tensor& out = iter.tensor(index);
    config.add_owned_output(has_promised_dtype(iter.dtype(index), common)
                                ? at::TensorBase(out)
                                : empty_strided_fast(out.sizes(), out.strides(), common, out.device()));
  }
  for (int index = iter.noutputs(); index < iter.ntensors(); ++index) {
    const at::Tensor& input = iter.tensor(index);
    config.add_owned_const_input(iter.dtype(index) == common ? at::TensorBase(input) : input.to(common));
  }
  at::TensorIterator promoted = config.build();
  kernel(promoted);
  for (int index = 0; index < iter.noutputs(); ++index) {
    if (!promoted.tensor(index).is_same(iter.tensor(index))) {
      iter.tensor(index).copy_(promoted.tensor(index));
    }
  }
}

}  // namespace opsmith::detail
