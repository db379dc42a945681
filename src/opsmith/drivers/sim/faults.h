// Fault injection: which calls are to fail or to be slow. Read by every entry of the driver, so each question
// costs one relaxed load while nothing is injected.
#pragma once

#include <opsmith_driver.h>

namespace sim::faults {

// Each takes one of the injected failures, if any are left, and says whether it did.
bool take_allocate() noexcept;
bool take_copy() noexcept;
bool take_fill() noexcept;

bool is_lost(int device) noexcept;

// How long each task of a stream sleeps first; 0 when nothing is injected.
long slow_microseconds() noexcept;

}  // namespace sim::faults
