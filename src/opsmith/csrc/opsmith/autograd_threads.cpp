// See autograd_threads.h.
//
// The engine counts the devices at the first backward() of the process, on whatever device, and never again:
// a driver that is loaded after a backward() on the CPU would find no queue for its devices, and each
// backward() on them would end in an internal assert of PyTorch's. The engine offers no way to be told, but
// its start is a protected member.
#include <opsmith/autograd_threads.h>

#include <torch/csrc/autograd/engine.h>

namespace opsmith {

namespace {

struct StartedEngine : torch::autograd::Engine {
  static void add_missing_threads(torch::autograd::Engine& engine) {
    // The pool is made by the engine's start. Before it there is nothing to mend: the start will count right.
    // And if there are queues, another accelerator's threads run already, which a second start would wait for
    // in vain.
    const bool is_started = (engine.*&StartedEngine::thread_pool_shared_) != nullptr;
    if (is_started && (engine.*&StartedEngine::device_ready_queues_).empty()) {
      (engine.*&StartedEngine::start_device_threads)();
    }
  }
};

}  // namespace

void start_autograd_threads() {
  StartedEngine::add_missing_threads(torch::autograd::Engine::get_default_engine());
}

}  // namespace opsmith
