// Which run of which kernel fails.
#pragma once

namespace failing {

// Counts a run, and says whether it is the one that fail_at() names.
bool failure_is_due() noexcept;

}  // namespace failing
