// Counting operator calls by overload, for reports such as "how many calls took each route".
//
// torch.ops.opsmith.count_calls(True) starts at zero, count_calls(False) stops, call_counts() returns a
// dictionary from overload ("add.Tensor"; other namespaces than aten keep theirs: "torchvision::nms") to the
// number of calls. Counted are the calls of all threads, nested ones included, on any device: the device of a
// call is not known without boxing its arguments. What a CPU kernel calls while it serves a fallback is left
// out.
#pragma once

namespace opsmith {

namespace detail {
inline thread_local int uncounted_depth = 0;
}

// While it lives, the calls of this thread are not counted.
class Uncounted {
 public:
  Uncounted() noexcept { ++detail::uncounted_depth; }
  ~Uncounted() { --detail::uncounted_depth; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

}  // namespace opsmith
