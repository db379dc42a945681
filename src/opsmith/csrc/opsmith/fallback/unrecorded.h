// Calls that reports leave out: those that a CPU kernel makes while it serves a fallback.
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
