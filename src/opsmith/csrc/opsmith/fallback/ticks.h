// How long the ticks of c10::getApproximateTime() are, by which calls are timed.
#pragma once

#include <cstdint>
#include <functional>

namespace opsmith {

// Converts a number of ticks to nanoseconds. Measures the clock's rate, which takes a while: once for many
// conversions. The longer ago the library was loaded, the more exactly it is known.
std::function<int64_t(int64_t)> ticks_to_nanoseconds();

}  // namespace opsmith
