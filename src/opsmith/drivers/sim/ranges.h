// Ranges of the program. The simulated accelerator has no tool to show them in: it counts what is open, and
// keeps a record for tests (see sim.h).
#pragma once

namespace sim::ranges {

void push(const char* text);

// False where no range is open in this thread.
bool pop();

}  // namespace sim::ranges
