// PyTorch's autograd engine has a thread for each device. This keeps them in step with a device that comes
// late, and with a process that ends early.
#pragma once

namespace opsmith {

// Gives the engine its threads for the devices, if it was started when there were none. Called once the
// devices are known; no backward() may run meanwhile.
void start_autograd_threads();

// Ends the engine's device threads, if it has any. For the end of the process: no backward() on a device
// works after it. Python's atexit calls it, without the interpreter's lock.
void stop_autograd_threads();

}  // namespace opsmith
