// Daemon threads that are in the middle of an operator when the process ends.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include <torch/library.h>

namespace opsmith {

namespace {

// Note [Threads that Python ends]
// Once the interpreter ends, Python up to 3.13 ends each other thread that asks for its lock, with
// pthread_exit(), which unwinds the stack. A thread that comes back from an operator asks in a destructor,
// out of which nothing may be unwound: C++ calls std::terminate(), and the whole process aborts, on the CPU
// also. So such a thread waits for the end instead, as Python has it do from 3.14 on.
std::terminate_handler earlier = nullptr;
pthread_t ending_thread;

[[noreturn]] void wait_for_the_end() {
  // Nobody threw: it is unwound by force.
  if (std::current_exception() == nullptr && pthread_equal(pthread_self(), ending_thread) == 0) {
    for (;;) {
      pause();
    }
  }
  earlier();
  std::abort();
}

// Called at the end of the process by the thread that ends it, before the interpreter goes.
void keep_threads_from_aborting() {
  if (earlier == nullptr) {
    ending_thread = pthread_self();
    earlier = std::set_terminate(wait_for_the_end);
  }
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("keep_threads_from_aborting() -> ()", &keep_threads_from_aborting);
}

}  // namespace

}  // namespace opsmith
