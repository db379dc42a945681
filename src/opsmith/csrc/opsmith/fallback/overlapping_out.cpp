// See overlapping_out.h.
#include <opsmith/fallback/overlapping_out.h>

#include <opsmith/device/empty.h>
#include <opsmith/device/host_view.h>
#include <opsmith/fallback/parts.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace opsmith {
namespace {

bool has_room(const at::Tensor& out) {
  const auto elements = static_cast<size_t>(out.storage_offset() + out.numel());
  return out.numel() < 2 || (elements * out.itemsize() <= out.storage().nbytes() &&
                             at::has_internal_overlap(out) != at::MemOverlap::Yes);
}

int64_t elements_spanned(const at::Tensor& tensor) {
  const auto [begin, end] = byte_span(tensor);
  return static_cast<int64_t>((end - begin) / tensor.itemsize());
}

// Whether `value` is, or holds, a tensor in the memory of `out`.
bool shares_memory(const c10::IValue& value, const at::Tensor& out) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.has_storage() && tensor.storage().is_alias_of(out.storage());
  }
  if (value.isList()) {
    const auto elements = value.toListRef();
    return std::any_of(elements.begin(), elements.end(),
                       [&](const c10::IValue& element) { return shares_memory(element, out); });
  }
  return false;
}

// The first elements in the memory of `tensor`, those between its own too.
at::Tensor span(const at::Tensor& tensor, int64_t elements) {
  return tensor.as_strided({elements}, {1}, tensor.storage_offset());
}

}  // namespace

at::Tensor OverlappingOuts::in_place_of(const at::Tensor& out, c10::ArrayRef<c10::IValue> operands) {
  if (C10_LIKELY(is_made_of_parts(out) || out.is_quantized() || has_room(out))) {
    return out;
  }
  for (const Pair& pair : pairs_) {
    if (pair.given.is_same(out)) {
      return pair.stand_in;
    }
  }
  if (std::any_of(operands.begin(), operands.end(),
                  [&](const c10::IValue& value) { return shares_memory(value, out); })) {
    at::assert_no_internal_overlap(out);
    return out;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const int64_t elements = elements_spanned(out);
  at::Tensor stand_in = empty_fast({std::max(elements, out.numel())}, out.scalar_type(), out.device());
  span(stand_in, elements).copy_(span(out, elements));
  stand_in.unsafeGetTensorImpl()->set_sizes_and_strides(out.sizes(), out.strides());
  pairs_.push_back({out, stand_in});
  return stand_in;
}

void OverlappingOuts::refuse_unless_resized(const Pair& pair, const at::Tensor& host) {
  if (host.sizes() == pair.given.sizes() && host.strides() == pair.given.strides()) {
    at::assert_no_internal_overlap(pair.given);
  }
}

void OverlappingOuts::finish(torch::jit::Stack& stack, size_t results) const {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const Pair& pair : pairs_) {
    const auto& [given, stand_in] = pair;
    if (given.sizes() == stand_in.sizes() && given.strides() == stand_in.strides()) {
      const int64_t elements = elements_spanned(given);
      span(given, elements).copy_(span(stand_in, elements));
    } else {
      given.resize_(stand_in.sizes());
      given.unsafeGetTensorImpl()->set_sizes_and_strides(stand_in.sizes(), stand_in.strides());
      given.copy_(stand_in);
    }
    for (size_t i = stack.size() - results; i < stack.size(); ++i) {
      if (stack[i].isTensor() && stack[i].toTensor().is_same(stand_in)) {
        stack[i] = given;
      }
    }
  }
}

}  // namespace opsmith
