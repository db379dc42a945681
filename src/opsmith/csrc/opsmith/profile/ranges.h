// Ranges of the program that the tools of the device's vendor show, as NVTX's do: torch.<name>.nvtx. A driver
// without the entries shows them to nobody.
#pragma once

#include <cstdint>

namespace opsmith::profile {

// Opens a range in this thread, called `text`: how many were open before.
int64_t push_range(const char* text);

// Closes the innermost open range of this thread: how many are still open. Throws where none is.
int64_t pop_range();

// A point in time: an empty range.
void mark(const char* text);

}  // namespace opsmith::profile
