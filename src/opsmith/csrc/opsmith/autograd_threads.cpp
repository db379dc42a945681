// See autograd_threads.h.
#include <opsmith/autograd_threads.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include <opsmith/driver.h>

namespace opsmith {

namespace {

using torch::autograd::Engine;

// The engine counts the devices at the first backward() of the process, on whatever device, and never again: after a
// backward() on the CPU, a driver that is loaded then would find no queues for its devices, and each backward() on them
// would end in an internal assert of PyTorch's. The engine cannot be told; but how it starts is a protected member.
struct OpenedEngine : Engine {
  static void add_missing_threads(Engine& engine) {
    // The pool is made by the engine's start. Before it there is nothing to mend: the start will count right. And if
    // there are queues, another accelerator's threads run already, which a second start would wait for in vain.
    const bool is_started = (engine.*&OpenedEngine::thread_pool_shared_) != nullptr;
    if (is_started && (engine.*&OpenedEngine::device_ready_queues_).empty()) {
      (engine.*&OpenedEngine::start_device_threads)();
    }
  }
};

}  // namespace

void start_autograd_threads() { OpenedEngine::add_missing_threads(Engine::get_default_engine()); }

// backward() returns when the gradients are there, while the device's thread has still to destroy the pass, for which
// it may need Python's lock. Once the interpreter is about to end, Python kills a thread that asks for its lock, and C++
// answers with std::terminate: a script that ends right after a backward() would abort more often than not. The engine
// would stop its threads by itself, but only after the interpreter is gone.
void stop_autograd_threads() {
  if (!is_in_bad_fork()) {  // in a child there are none, and the engine would wait for them
    Engine::get_default_engine().stop();
  }
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) { m.def("stop_autograd_threads() -> ()", &stop_autograd_threads); }

}  // namespace opsmith
