// PyTorch's autograd engine and a device that comes late.
#pragma once

namespace opsmith {

// Gives the autograd engine its threads for the devices, if it was started when there were none. Called once
// the devices are known; no backward() may run meanwhile.
void start_autograd_threads();

}  // namespace opsmith
