// PyTorch's autograd engine has a thread for each device. This keeps them in step with a device that comes
// late, and with a process that ends early, and does without them where the host computes.
#pragma once

namespace opsmith {

// Gives the engine its threads for the devices, if it was started when there were none. Called once the
// devices are known; no backward() may run meanwhile.
void start_autograd_threads();

// From now on backward() computes on the thread that calls it, as on the CPU, if that is this thread. For
// devices whose operators run on the host's cores. torch.autograd.set_multithreading_enabled(True) undoes it.
void keep_backward_on_this_thread();

// Ends the engine's device threads, if it has any. For the end of the process: no backward() on a device
// works after it. Python's atexit calls it, without the interpreter's lock.
void stop_autograd_threads();

}  // namespace opsmith
