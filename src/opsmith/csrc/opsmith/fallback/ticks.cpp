// See ticks.h.
#include <opsmith/fallback/ticks.h>

#include <c10/util/ApproximateClock.h>

namespace opsmith {
namespace {

c10::ApproximateClockToUnixTimeConverter clock_since_load;

}  // namespace

std::function<int64_t(int64_t)> ticks_to_nanoseconds() {
  return [unix_time = clock_since_load.makeConverter(), now = c10::getApproximateTime()](int64_t ticks) {
    return unix_time(now) - unix_time(now - static_cast<c10::approx_time_t>(ticks));
  };
}

}  // namespace opsmith
