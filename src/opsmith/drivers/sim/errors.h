// The text of this thread's last failed call, which is what last_error() of the driver's table returns.
#pragma once

#include <opsmith_driver.h>

namespace sim {

// Stores the text for last_error() and returns `status`, so that a failing entry is one `return fail(...)`.
[[gnu::format(printf, 2, 3)]] opsmith_status fail(opsmith_status status, const char* format, ...) noexcept;

const char* last_error() noexcept;

}  // namespace sim
