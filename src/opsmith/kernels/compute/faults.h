// Mistakes that only a kernel can see, such as an index that is out of range: the kernel leaves a number in
// the buffer `fault`, and the next call that waits for the device raises what it stands for.
#pragma once

#include <string>

namespace opsmith::compute {

// The current stream's buffer, for a parameter BUFFER(int, …) of the kernel that is launched next.
const void* faults();

// FAULT_INDEX and FAULT_TARGET, for the kernel's source.
const std::string& fault_definitions();

}  // namespace opsmith::compute
