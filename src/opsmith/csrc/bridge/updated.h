// Operands that a kernel changes beside its outputs: in-place arguments such as a cache, and batch
// normalisation's running statistics, although no schema says so. A copy of one that is made for the kernel
// holds its elements, and is copied back.
#pragma once

#include <bridge/lean_call.h>
#include <opsmith/generated/each_tensor.h>

#include <optional>

namespace opsmith {

struct Updated {
  explicit Updated(const std::optional<at::Tensor>& given) : tensor(given.value_or(at::Tensor())) {}

  at::Tensor tensor;  // undefined where there is none
};

template <class Visit>
inline void each_tensor(const Updated& updated, const Visit& visit) {
  each_tensor(updated.tensor, visit);
}

// For on_copies() (opsmith/generated/on_copies.h).
template <class Views, class Access>
inline Updated copied(Views& views, const Updated& updated, Access access) {
  return Updated(views.view(updated.tensor, access));
}

namespace detail {

template <>
struct LeanArgument<lean::Tensor&, Updated> : LeanOutput {
  LeanArgument(const LeanCall& call, const Updated& given) : LeanOutput(call, given.tensor) {
    if (held_.defined()) {
      copy_in_order(held_, given.tensor);
      if (!call.queued) {
        wait_for_copies();
      }
    }
  }
};

template <>
struct LeanArgument<const std::optional<lean::Tensor>&, Updated> : LeanArgument<lean::Tensor&, Updated> {
  LeanArgument(const LeanCall& call, const Updated& given)
      : LeanArgument<lean::Tensor&, Updated>(call, given) {
    if (given.tensor.defined()) {
      value = LeanOutput::get();
    }
  }
  const std::optional<lean::Tensor>& get() { return value; }

  std::optional<lean::Tensor> value;
};

}  // namespace detail
}  // namespace opsmith
