// Starts and ends traces. The functions at the end are called by runtime/records/trace/recording.py through
// ctypes: an operator of ours would be part of the trace.
#include "interposer.h"
#include "log.h"
#include "session.h"

#include <ATen/record_function.h>

#include <pthread.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

namespace opsmith::trace {
namespace {

// How long the end of a trace waits for other threads to leave what they record, so that the records tell
// when they did. Those that stay for longer are shown as not having returned.
constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kNap = std::chrono::microseconds(50);

struct Tracing {
  std::mutex mutex;  // of starting and ending
  Session* session = nullptr;
  Interposer interposer;
  std::vector<at::CallbackHandle> callbacks;
  std::atomic<uint64_t> generation{1};
  uint64_t last_id = 0;
};

Tracing& tracing() {
  static auto* const one = new Tracing();  // never destroyed: threads may call at exit
  return *one;
}

// ---- what the dispatcher and the autograd engine call

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
  Log* const log = current_log();
  if (log == nullptr || !log->records()) {
    return nullptr;
  }
  const uint64_t generation = tracing().generation.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(log->interpositions != generation)) {
    log->interpositions = generation;
    log->seen.clear();
  }
  const char* const name = function.name();
  if (C10_UNLIKELY(!log->seen.has(name))) {
    const auto operator_name = function.operator_name();
    if (!operator_name.has_value()) {
      return nullptr;  // a span that C++ code marks, no operator
    }
    const uint64_t start = c10::getApproximateTime();
    tracing().interposer.interpose(*operator_name, generation);
    log->seen.add(name);
    log->leave_out(start);
  }
  log->announce(name, function.inputs().data());
  return nullptr;
}

std::unique_ptr<at::ObserverContext> on_node(const at::RecordFunction& function) {
  if (Log* const log = pinned_log()) {
    log->enter_node(log->number_of(function.name()), static_cast<uint64_t>(function.seqNr()),
                    function.forwardThreadId());
  }
  return nullptr;
}

void on_node_end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  if (Log* const log = current_log()) {
    log->leave_node();
  }
}

// ---- forks

void before_fork() {
  tracing().mutex.lock();
}

void after_fork() {
  tracing().mutex.unlock();
}

void in_child() {
  Tracing& here = tracing();
  new (&here.mutex) std::mutex();
  here.interposer.forked();
  forget_log();
  if (here.session != nullptr) {
    here.session->forked();
    active.store(++here.last_id);
  }
}

// ---- starting and ending

void start(Options options) {
  Tracing& here = tracing();
  const std::lock_guard lock(here.mutex);
  TORCH_CHECK(here.session == nullptr, "a trace runs already");
  [[maybe_unused]] static const int at_forks = ::pthread_atfork(before_fork, after_fork, in_child);
  here.session = new Session(std::move(options));  // never deleted: threads may be late
  here.generation.fetch_add(1);
  here.interposer.serve(here.session);
  active.store(++here.last_id);
  here.callbacks = {
      at::addGlobalCallback(at::RecordFunctionCallback(on_call)
                                .needsInputs(here.session->options().shapes)
                                .scopes({at::RecordScope::FUNCTION})),
      at::addGlobalCallback(
          at::RecordFunctionCallback(on_node, on_node_end).scopes({at::RecordScope::BACKWARD_FUNCTION})),
  };
}

void stop() {
  Tracing& here = tracing();
  const std::lock_guard lock(here.mutex);
  if (here.session == nullptr) {
    return;
  }
  here.session->note_clock();
  here.session->begin_closing();
  const auto patience = std::chrono::steady_clock::now() + kPatience;
  while (here.session->others_are_recording() && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(kNap);
  }
  here.interposer.remove();
  for (const at::CallbackHandle callback : here.callbacks) {
    at::removeCallback(callback);
  }
  Session* const ended = here.session;
  here.session = nullptr;
  active.store(0);
  ended->close();
}

}  // namespace

Session* running_session() {
  return tracing().session;
}

}  // namespace opsmith::trace

namespace {

thread_local std::string error_text;

// Runs `body`; what it throws becomes the text of the error.
template <class Body>
const char* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    error_text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    error_text = error.what();
  }
  return error_text.c_str();
}

}  // namespace

extern "C" {

// Each returns null, or what went wrong.

C10_EXPORT const char* opsmith_trace_start(const char* folder, int64_t limit, int shapes, int only_modules) {
  return guarded([&] { opsmith::trace::start({folder, limit, shapes != 0, only_modules != 0}); });
}

C10_EXPORT const char* opsmith_trace_stop() {
  return guarded([] { opsmith::trace::stop(); });
}

// Writes down what the clock says, at the end of a process.
C10_EXPORT const char* opsmith_trace_note_clock() {
  return guarded([] {
    if (auto* const session = opsmith::trace::running_session()) {
      session->note_clock();
    }
  });
}

// Kernels have been registered: all operators are looked at anew when they are called next.
C10_EXPORT const char* opsmith_trace_refresh() {
  return guarded([] {
    opsmith::trace::tracing().generation.fetch_add(1);
    if (auto* const session = opsmith::trace::running_session()) {
      session->note_device();
    }
  });
}

C10_EXPORT const char* opsmith_trace_enter_module(const char* name) {
  return guarded([&] {
    if (auto* const log = opsmith::trace::pinned_log()) {
      log->enter_module(log->number_of(name));
    }
  });
}

C10_EXPORT const char* opsmith_trace_leave_module(int raised) {
  return guarded([&] {
    if (auto* const log = opsmith::trace::current_log()) {
      log->leave_module(raised != 0);
    }
  });
}

}  // extern "C"
