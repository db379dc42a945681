// Operands that a kernel changes although no schema says so: batch normalisation's running statistics. What a
// kernel has written to a copy of one is copied back.
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

namespace detail {

template <>
struct LeanArgument<const std::optional<lean::Tensor>&, Updated> : LeanOutput {
  LeanArgument(const LeanCall& call, const Updated& given) : LeanOutput(call, given.tensor) {
    if (!given.tensor.defined()) {
      return;
    }
    if (held_.defined()) {
      copy_in_order(held_, given.tensor);
      if (!call.queued) {
        wait_for_copies();
      }
    }
    value = LeanOutput::get();
  }
  const std::optional<lean::Tensor>& get() { return value; }

  std::optional<lean::Tensor> value;
};

}  // namespace detail
}  // namespace opsmith
