// Differences between the supported releases of PyTorch, and the only place that asks for the release.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <ATen/TensorIterator.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 9
#error "opsmith supports torch 2.9 and later: pip install 'torch>=2.9,<2.16'"
#endif

// Structured operators announce the names of their outputs' dimensions until 2.12, the last release with
// named Tensors: the parameter of set_output_strided() and set_output_raw_strided(), and its argument.
#if TORCH_VERSION_MINOR < 13
#define OPSMITH_NAMES_PARAMETER , at::DimnameList names
#define OPSMITH_NAMES_ARGUMENT , names
#else
#define OPSMITH_NAMES_PARAMETER
#define OPSMITH_NAMES_ARGUMENT
#endif

// Functions of c10::impl::DeviceGuardImplInterface that are virtual from that release on.
#if TORCH_VERSION_MINOR < 10
#define OPSMITH_OVERRIDE_SINCE_2_10
namespace c10 {
struct DeviceCapability {
  struct {
    uint64_t capability_bits;
  } capability_data;
};
}  // namespace c10
#else
#include <c10/core/DeviceCapability.h>
#define OPSMITH_OVERRIDE_SINCE_2_10 override
#endif
#if TORCH_VERSION_MINOR < 11
#define OPSMITH_OVERRIDE_SINCE_2_11
#else
#define OPSMITH_OVERRIDE_SINCE_2_11 override
#endif

// at::GraphImplInterface, the backend of torch.accelerator.Graph: from 2.12 on.
#define OPSMITH_HAS_ACCELERATOR_GRAPHS (TORCH_VERSION_MINOR >= 12)

// The type that the profiler shows for reduce_scatter_tensor_coalesced: one of its own from 2.12 on.
#if TORCH_VERSION_MINOR < 12
#define OPSMITH_REDUCE_SCATTER_TENSOR_COALESCED COALESCED
#else
#define OPSMITH_REDUCE_SCATTER_TENSOR_COALESCED REDUCE_SCATTER_TENSOR_COALESCED
#endif

// Whether clamp and hardtanh take limits beyond what integers of the dtype hold to its own: from 2.15 on.
#define OPSMITH_LIMITS_SATURATE (TORCH_VERSION_MINOR >= 15)

// Checks of at::native::padding::check_valid_input, of <ATen/native/Padding.h>, for `dims` dimensions, which
// became an argument in 2.15.
#if TORCH_VERSION_MINOR < 15
#define OPSMITH_CHECK_PADDING(input, padding, dims) \
  at::native::padding::check_valid_input<dims>(input, padding)
#else
#define OPSMITH_CHECK_PADDING(input, padding, dims) \
  at::native::padding::check_valid_input(input, padding, dims)
#endif

// The argument of at::Context::allowTF32CuDNN(), of <ATen/Context.h>, that asks for convolutions alone.
#if TORCH_VERSION_MINOR < 10
#define OPSMITH_CONVOLUTIONS "conv"
#else
#define OPSMITH_CONVOLUTIONS at::Float32Op::CONV
#endif

#if TORCH_VERSION_MINOR < 13
namespace torch::autograd {
struct Node;
TORCH_API void deleteNode(Node* function);
}  // namespace torch::autograd
#endif

namespace opsmith {

// Whether a Tensor or a storage has an object in Python.
inline bool has_python_object(const c10::impl::PyObjectSlot& slot) {
#if TORCH_VERSION_MINOR < 10
  return slot._unchecked_untagged_pyobj() != nullptr;
#else
  return slot.load_pyobj() != nullptr;
#endif
}

// at::HostStats of an allocator that keeps nothing: what is allocated is in use. Its members have other names
// in 2.9.
template <class HostStats, class Stat>
HostStats host_stats_of(const Stat& count, const Stat& bytes) {
  HostStats stats;
#if TORCH_VERSION_MINOR < 10
  stats.allocation = stats.segment = count;
  stats.allocated_bytes = stats.reserved_bytes = bytes;
#else
  stats.active_requests = stats.allocations = count;
  stats.active_bytes = stats.allocated_bytes = bytes;
#endif
  return stats;
}

// The pointer that owns a node of the autograd graph.
#if TORCH_VERSION_MINOR < 13
template <class Node>
using NodePtr = std::shared_ptr<Node>;

template <class Node, class... Arguments>
NodePtr<Node> make_node(Arguments&&... arguments) {
  return NodePtr<Node>(new Node(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
}
#else
template <class Node>
using NodePtr = c10::intrusive_ptr<Node>;

template <class Node, class... Arguments>
NodePtr<Node> make_node(Arguments&&... arguments) {
  return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}
#endif

// The iterator's common dtype, where it computes one: TensorIteratorBase::maybe_common_dtype(), from 2.13 on.
inline std::optional<c10::ScalarType> common_dtype_of(const at::TensorIteratorBase& iter) {
#if TORCH_VERSION_MINOR < 13
  struct Iterator : at::TensorIteratorBase {
    static c10::ScalarType of(const at::TensorIteratorBase& iter) { return iter.*(&Iterator::common_dtype_); }
  };
  const c10::ScalarType found = Iterator::of(iter);
  return found == c10::ScalarType::Undefined ? std::nullopt : std::optional(found);
#else
  return iter.maybe_common_dtype();
#endif
}

}  // namespace opsmith
