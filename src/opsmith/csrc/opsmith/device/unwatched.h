// The debug mode's own calls of the driver (watched_streams.h).
#pragma once

#include <utility>

namespace opsmith {

namespace detail {
inline constinit thread_local bool is_unwatched = false;
}

// While one lives, this thread's calls of the driver are the debug mode's own.
class Unwatched {
 public:
  Unwatched() : outer_(std::exchange(detail::is_unwatched, true)) {}
  ~Unwatched() { detail::is_unwatched = outer_; }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  bool outer_;
};

}  // namespace opsmith
