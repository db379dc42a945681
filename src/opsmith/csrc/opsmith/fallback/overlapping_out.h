// An `out` whose elements share their memory, as an expanded Tensor's do, for kernels of the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

namespace opsmith {

// Note [An out whose elements share their memory]
// PyTorch's CPU resizes such an `out` if it has another size than the result, and is then right to write to
// it; of the right size most kernels refuse it, but some (native_batch_norm.out, max_pool3d_with_indices.out)
// take it for contiguous without a look, which is to write to memory of others. So the kernel is given a
// Tensor like it, in memory where it would have room for that. Then whoever was not resized is refused.
class OverlappingOuts {
 public:
  // The Tensor that the kernel gets in the place of `out`: a stand-in on the device, or itself where it has
  // room. Copies are queued: called before the kernel's operands are waited for.
  // One that also shares memory with the `operands` is refused: in other memory the kernel would not see
  // that.
  at::Tensor in_place_of(const at::Tensor& out, c10::ArrayRef<c10::IValue> operands);

  // Called when the kernel has returned and `host_of` has its CPU Tensor for each stand-in: raises for one
  // that was not resized, before anything is written back.
  template <class HostOf>
  void refuse_unresized(const HostOf& host_of) const {
    for (const Pair& pair : pairs_) {
      refuse_unless_resized(pair, host_of(pair.stand_in));
    }
  }

  // Called when the stand-ins are written: gives what they have to the Tensors that were given, which come
  // into the place of theirs among `results`.
  void finish(torch::jit::Stack& stack, size_t results) const;

 private:
  struct Pair {
    at::Tensor given;
    at::Tensor stand_in;
  };

  static void refuse_unless_resized(const Pair& pair, const at::Tensor& host);

  c10::SmallVector<Pair, 1> pairs_;
};

}  // namespace opsmith
