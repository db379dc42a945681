// PyTorch's autograd engine has a thread for each device. This keeps them in step with a device that comes
// late, and with a process that ends early, and does without them where the host computes.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/library.h>

#include <opsmith/device/driver.h>
#include <opsmith/device/load_driver.h>

namespace opsmith {

namespace {

using torch::autograd::Engine;

// The engine counts the devices at the first backward() of the process, on whatever device, and never again:
// after a backward() on the CPU, a driver that is loaded then would find no queues for its devices, and each
// backward() on them would end in an internal assert of PyTorch's. The engine cannot be told; but how it
// starts is a protected member.
struct OpenedEngine : Engine {
  static void add_missing_threads(Engine& engine) {
    // The pool is made by the engine's start. Before it there is nothing to mend: the start will count right.
    // And if there are queues, another accelerator's threads run already, which a second start would wait for
    // in vain.
    const bool is_started = (engine.*&OpenedEngine::thread_pool_shared_) != nullptr;
    if (is_started && (engine.*&OpenedEngine::device_ready_queues_).empty()) {
      (engine.*&OpenedEngine::start_device_threads)();
    }
  }

  static bool has_device_threads(Engine& engine) {
    return !(engine.*&OpenedEngine::device_ready_queues_).empty();
  }
};

// Whether the system still lists a thread of the engine's for a device; PyTorch names them pt_autograd_0 and
// so on.
bool is_device_thread_alive() {
  std::error_code error;  // threads come and go meanwhile
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; task != end;
       task.increment(error)) {
    std::string name;
    std::getline(std::ifstream(task->path() / "comm"), name);
    if (name.starts_with("pt_autograd_")) {
      return true;
    }
  }
  return false;
}

// Gives the engine its threads for the devices, if it was started when there were none; no backward() may run
// meanwhile.
void start_autograd_threads() {
  // In a fork, PyTorch's pool of threads is made anew by who asks for it first. The engine's threads all ask
  // as they start, and where two of them are first the process aborts.
  at::init_num_threads();
  OpenedEngine::add_missing_threads(Engine::get_default_engine());
}

// Note [One team of threads]
// OpenMP keeps a team of worker threads for each thread that computes in parallel. Were the backward pass
// computed on the engine's thread for the device, there would be two teams of as many threads as cores; an
// idle team spins for a while before it sleeps, in the way of the other one, and once there are more threads
// than cores, libgomp hardly lets any of them spin, so that each parallel loop has to wake its team. A
// training step then takes twice as long, on the CPU also. So where operators run on the host's cores,
// backward() computes on the thread that calls it, if that is the one that loads the driver.
// torch.autograd.set_multithreading_enabled(True) undoes it.
void keep_backward_on_this_thread() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

// backward() returns when the gradients are there, while the device's thread has still to destroy the pass,
// for which it may need Python's lock. Once the interpreter is about to end, Python kills a thread that asks
// for its lock, and C++ answers with std::terminate: a script that ends right after a backward() would abort
// more often than not. The engine would stop its threads by itself, but only after the interpreter is gone.
// So Python's atexit calls this, without the interpreter's lock; no backward() on a device works after it.
void stop_autograd_threads() {
  if (is_in_bad_fork()) {
    return;  // in a child there are no threads, and the engine would wait for them
  }
  Engine& engine = Engine::get_default_engine();
  if (!OpenedEngine::has_device_threads(engine)) {
    return;
  }
  engine.stop();
  // A thread that counts as stopped still takes Python's lock once more on its way out.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (is_device_thread_alive() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

[[maybe_unused]] const bool waits_for_driver = [] {
  observe_load([] {
    start_autograd_threads();
    if (driver().host_window != nullptr) {
      keep_backward_on_this_thread();
    }
  });
  return true;
}();

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("stop_autograd_threads() -> ()", &stop_autograd_threads);
}

}  // namespace

}  // namespace opsmith
