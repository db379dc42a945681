// The parts of derived.h that need not be inlined, and the refusal of mixed devices that call.h declares.
#include <opsmith/generated/derived.h>

#include <opsmith/generated/call.h>
#include <opsmith/device/driver.h>
#include <opsmith/torch_version.h>

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/InferenceMode.h>

namespace opsmith {

namespace detail {

void throw_mixed_devices(const char* operator_name, c10::Device device, const at::TensorBase& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              device, " and ", other.device(), "! (", operator_name, ", argument of shape ", other.sizes(),
              ")\n  remedy: move it with .to(\"", device, "\")");
}

}  // namespace detail

namespace {

// Note [Spare meta tensors]
// Making a tensor and freeing it takes longer than most meta functions. So those of a call that nobody else
// has got hold of serve the next one of the thread.
constexpr size_t kSpareMetas = 8;

bool is_as_made(const at::Tensor& spare) {
  c10::TensorImpl* impl = spare.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  return spare.weak_use_count() == 1 && !has_python_object(*impl->pyobj_slot()) &&
         impl->autograd_meta() == nullptr && impl->is_inference() == c10::InferenceMode::is_enabled() &&
         impl->key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView == kMeta &&
         storage.use_count() == 1 && !has_python_object(*storage.unsafeGetStorageImpl()->pyobj_slot()) &&
         impl->storage_offset() == 0;
}

}  // namespace

at::Tensor meta(const at::Tensor& tensor) {
  // A number takes part in every device's operators, and a meta kernel written in Python must read its value.
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return tensor;
  }
  thread_local std::array<at::Tensor, kSpareMetas> spares;
  const auto free = std::find_if(spares.begin(), spares.end(), [](const at::Tensor& spare) {
    return !spare.defined() || spare.use_count() == 1;
  });
  if (free != spares.end() && free->defined() && is_as_made(*free)) {
    c10::TensorImpl* impl = free->unsafeGetTensorImpl();
    if (impl->dtype() != tensor.dtype()) {
      impl->set_storage_and_dtype(impl->storage(), tensor.dtype());
    }
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    impl->unsafe_storage().unsafeGetStorageImpl()->set_nbytes(
        at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize()));
    return *free;
  }
  at::Tensor made = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (free != spares.end()) {
    *free = made;
  }
  return made;
}

std::optional<at::Tensor> meta(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(meta(*tensor)) : std::nullopt;
}

std::vector<at::Tensor> meta(const at::ITensorListRef& tensors) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    result.push_back(meta(tensor));
  }
  return result;
}

c10::List<std::optional<at::Tensor>> meta(const c10::List<std::optional<at::Tensor>>& tensors) {
  c10::List<std::optional<at::Tensor>> result;
  result.reserve(tensors.size());
  for (const std::optional<at::Tensor>& tensor : tensors) {
    result.push_back(meta(tensor));
  }
  return result;
}

namespace {

// Whether no two elements lie in the same place, by a sufficient condition: each dimension steps over those
// that are nested in it. So does what has gaps.
bool has_distinct_elements(const at::Tensor& tensor) {
  at::DimVector dims(tensor.dim());
  std::iota(dims.begin(), dims.end(), int64_t{0});
  std::sort(dims.begin(), dims.end(),
            [&](int64_t a, int64_t b) { return tensor.stride(a) < tensor.stride(b); });
  int64_t extent = 1;
  for (const int64_t dim : dims) {
    if (tensor.size(dim) > 1) {
      if (tensor.stride(dim) < extent) {
        return false;
      }
      extent += tensor.stride(dim) * (tensor.size(dim) - 1);
    }
  }
  return true;
}

}  // namespace

at::Tensor allocate_as(const at::Tensor& meta) {
  if (!meta.defined()) {
    return meta;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(meta.layout() == at::kStrided && !meta.is_quantized(), "the result would be a ",
                              meta.is_quantized() ? "quantized" : c10::str(meta.layout()), " tensor, and ",
                              device_type_name(), " has only strided (dense) ones");
  const c10::Device device(c10::kPrivateUse1, current_device());
  // Where self stands for a meta kernel's result, its gaps are no promise.
  if (!meta.is_non_overlapping_and_dense() && !(meta.is_meta() && has_distinct_elements(meta))) {
    return empty_fast(meta.sizes(), meta.scalar_type(), device);
  }
  return empty_strided_fast(meta.sizes(), meta.strides(), meta.scalar_type(), device);
}

std::vector<at::Tensor> allocate_as(at::TensorList metas) {
  std::vector<at::Tensor> results;
  results.reserve(metas.size());
  for (const at::Tensor& meta : metas) {
    results.push_back(allocate_as(meta));
  }
  return results;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor copy = empty_fast(tensor.sizes(), tensor.scalar_type(), tensor.device());
  copy.copy_(tensor);
  return copy;
}

std::vector<at::Tensor> copy_of(at::TensorList tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(copy_of(tensor));
  }
  return copies;
}

at::Tensor operand_in(const at::Tensor& result, const at::Tensor& self) {
  const bool holds = c10::promoteTypes(self.scalar_type(), result.scalar_type()) == result.scalar_type();
  at::Tensor operand = holds ? result : empty_fast(result.sizes(), self.scalar_type(), result.device());
  operand.copy_(self);
  return operand;
}

std::vector<at::Tensor> operand_in(at::TensorList results, at::TensorList selves) {
  std::vector<at::Tensor> operands;
  operands.reserve(results.size());
  for (size_t index = 0; index < results.size(); ++index) {
    operands.push_back(operand_in(results[index], selves[index]));
  }
  return operands;
}

void finish(const at::Tensor& result, const at::Tensor& operand) {
  if (!operand.is_same(result)) {
    result.copy_(operand);
  }
}

void finish(at::TensorList results, at::TensorList operands) {
  for (size_t index = 0; index < results.size(); ++index) {
    finish(results[index], operands[index]);
  }
}

namespace {

void check_castable(const char* operator_name, at::ScalarType from, at::ScalarType to) {
  TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to,
              " (", operator_name, ")");
}

void check_shape(const char* operator_name, at::IntArrayRef result, at::IntArrayRef self) {
  if (C10_UNLIKELY(result != self)) {
    detail::throw_shape(operator_name, result, self);
  }
}

// Calls visit(result, given) for each pair of two lists that must be as long as each other.
template <class Visit>
void each_pair(const char* operator_name, at::TensorList results, at::TensorList given, const Visit& visit) {
  detail::check_lengths(operator_name, results.size(), given.size());
  for (size_t index = 0; index < results.size(); ++index) {
    visit(results[index], given[index]);
  }
}

}  // namespace

void detail::throw_shape(const char* operator_name, at::IntArrayRef result, at::IntArrayRef given) {
  TORCH_CHECK(false, "output with shape ", given, " doesn't match the broadcast shape ", result, " (",
              operator_name, ")");
}

void detail::check_lengths(const char* operator_name, size_t results, size_t given) {
  TORCH_CHECK(results == given, operator_name, ": the operator has ", results,
              " results, but was given a list of ", given, " tensors for them");
}

void write_out(const char* operator_name, const at::Tensor& result, const at::Tensor& out) {
  if (!result.defined() || result.is_same(out)) {
    return;
  }
  check_castable(operator_name, result.scalar_type(), out.scalar_type());
  if (result.device() != out.device()) {
    detail::throw_mixed_devices(operator_name, result.device(), out);
  }
  at::native::resize_output(out, result.sizes());
  at::assert_no_internal_overlap(out);
  out.copy_(result);
}

void write_out(const char* operator_name, at::TensorList results, at::TensorList outs) {
  each_pair(operator_name, results, outs,
            [&](const at::Tensor& result, const at::Tensor& out) { write_out(operator_name, result, out); });
}

void write_same_dtype(const char* operator_name, const at::Tensor& result, const at::Tensor& out) {
  TORCH_CHECK(!result.defined() || result.scalar_type() == out.scalar_type(),
              "Expected out tensor to have dtype ", result.dtype(), ", but got ", out.dtype(), " instead (",
              operator_name, ")");
  write_out(operator_name, result, out);
}

void write_same_dtype(const char* operator_name, at::TensorList results, at::TensorList outs) {
  each_pair(operator_name, results, outs, [&](const at::Tensor& result, const at::Tensor& out) {
    write_same_dtype(operator_name, result, out);
  });
}

void write_inplace(const char* operator_name, const at::Tensor& result, const at::Tensor& self) {
  if (!result.defined()) {
    return;
  }
  check_inplace_result(operator_name, result, self);
  self.copy_(result);
}

void write_inplace(const char* operator_name, at::TensorList results, at::TensorList selves) {
  check_inplace_result(operator_name, results, selves);
  each_pair(operator_name, results, selves,
            [](const at::Tensor& result, const at::Tensor& self) { self.copy_(result); });
}

void check_inplace_result(const char* operator_name, const at::Tensor& meta, const at::Tensor& self) {
  check_castable(operator_name, meta.scalar_type(), self.scalar_type());
  check_shape(operator_name, meta.sizes(), self.sizes());
  at::assert_no_internal_overlap(self);
}

void check_inplace_result(const char* operator_name, at::TensorList metas, at::TensorList selves) {
  each_pair(operator_name, metas, selves, [&](const at::Tensor& meta, const at::Tensor& self) {
    check_inplace_result(operator_name, meta, self);
  });
}

at::Tensor as_resized(const at::Tensor& out, at::IntArrayRef sizes) {
  if (out.sizes() == sizes) {
    return out;
  }
  at::Tensor resized =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(out.storage()), out.key_set(), out.dtype());
  resized.unsafeGetTensorImpl()->set_storage_offset(out.storage_offset());
  resized.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return resized;
}

bool detail::broadcasts_to(const at::Tensor& first, const at::Tensor& tensor) {
  if (!is_strided_as_new(first)) {
    return false;
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return !tensor.is_complex() && tensor.scalar_type() != at::kBool;  // sub refuses True
  }
  const int64_t added = first.dim() - tensor.dim();
  bool fits = tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
              added >= 0 && is_strided_as_new(tensor);
  for (int64_t dim = 0; fits && dim < tensor.dim(); ++dim) {
    fits = tensor.size(dim) == 1 || tensor.size(dim) == first.size(added + dim);
  }
  return fits;
}

void detail::check_overlap(const at::TensorBase& self, const at::TensorBase& operand) {
  if (!operand.is_same(self)) {
    at::assert_no_partial_overlap(self, operand);
  }
}

void detail::check_no_overlap(const at::TensorBase& self, const at::TensorBase& operand) {
  at::assert_no_overlap(self, operand);
}

bool is_masked_fill(const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values,
                    bool accumulate) {
  int64_t masks = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (index.has_value() && index->defined()) {
      if (index->scalar_type() != at::kBool && index->scalar_type() != at::kByte) {
        return false;
      }
      ++masks;
    }
  }
  return !accumulate && values.numel() == 1 && masks == 1;
}

ShapeUnlessRaised::ShapeUnlessRaised(const at::Tensor& out)
    : out_(out), sizes_(out.sizes()), strides_(out.strides()), exceptions_(std::uncaught_exceptions()) {}

ShapeUnlessRaised::~ShapeUnlessRaised() {
  if (C10_UNLIKELY(std::uncaught_exceptions() > exceptions_ && out_.sizes() != sizes_)) {
    out_.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_);
  }
}

at::Tensor detail::result_in(const at::Tensor& out, const at::Tensor& meta, bool shares_memory) {
  if (out.scalar_type() != meta.scalar_type() || shares_memory) {
    return allocate_as(meta);
  }
  if (at::native::resize_output(out, meta.sizes()) && meta.is_non_overlapping_and_dense()) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  }
  at::assert_no_internal_overlap(out);
  return out;
}

}  // namespace opsmith
