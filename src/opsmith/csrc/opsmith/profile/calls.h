// Recording operator calls, for reports such as "how many calls took each route, and how long they took".
//
// torch.ops.opsmith.record_calls(True) starts anew, record_calls(False) stops, recorded_calls() returns what
// runtime/calls.py reads: a tree by thread, in which a node is an operator, or a node of the autograd graph,
// called where its parent was running, with the calls and the time of all of them. What a CPU kernel calls
// while it serves a fallback is left out.
#pragma once

namespace opsmith {

namespace detail {
inline thread_local int unrecorded_depth = 0;
}

// While it lives, the calls of this thread are not recorded.
class Unrecorded {
 public:
  Unrecorded() noexcept { ++detail::unrecorded_depth; }
  ~Unrecorded() { --detail::unrecorded_depth; }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
};

}  // namespace opsmith
