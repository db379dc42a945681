// Recording operator calls, for reports such as "how many calls took each route, and how long they took". A
// global RecordFunction callback, which costs nothing once it is removed.
//
// torch.ops.opsmith.record_calls(True) starts anew, record_calls(False) stops, recorded_calls() returns what
// runtime/records/calls.py reads: a tree by thread, in which a node is an operator, or a node of the autograd
// graph, called where its parent was running, with the calls and the time of all of them.
#include <opsmith/device/launch.h>
#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/fallback_counts.h>
#include <opsmith/fallback/owned_counter.h>
#include <opsmith/fallback/refusal.h>
#include <opsmith/fallback/ticks.h>
#include <opsmith/fallback/unrecorded.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace opsmith {
namespace {

// An operator's name and its overload's, of autograd's nodes the second is empty, and whether an argument is
// on the device. The node owns the names.
using Callee = std::tuple<std::string_view, std::string_view, bool>;

struct Node {
  Node(const at::RecordFunction& function, int64_t parent, bool on_device)
      : name(function.name(), function.overload_name()),
        parent(parent),
        on_device(on_device),
        is_backward(function.scope() == at::RecordScope::BACKWARD_FUNCTION) {}

  const c10::OperatorName name;
  const int64_t parent;  // in the thread's nodes; -1: nothing was running
  const bool on_device;
  const bool is_backward;
  OwnedCounter calls;
  OwnedCounter ticks;
  OwnedCounter own_ticks;
  OwnedCounter fell_back;
  OwnedCounter fallback_ticks;  // of own_ticks
  OwnedCounter on_copies;       // in a kernel that runs on the host
  OwnedCounter copies_ticks;    // of own_ticks
  OwnedCounter moved;           // bytes between host and device, for what ran on copies
  std::map<Callee, int64_t> children;
};

struct Frame;

// The calls of one thread since the recording began. The thread adds nodes under the lock.
struct ThreadCalls {
  std::deque<Node> nodes;
  std::map<Callee, int64_t> roots;
  Frame* innermost = nullptr;
};

// A call from its begin to its end.
struct Frame final : at::ObserverContext {
  std::shared_ptr<ThreadCalls> thread;  // even if the recording ends meanwhile
  int64_t node = 0;
  Frame* outer = nullptr;
  int64_t nested_ticks = 0;
  int64_t nested_fallbacks = 0;
  int64_t fallbacks_before = 0;
  int64_t nested_host_kernels = 0;
  int64_t host_kernels_before = 0;
  uint64_t nested_moved = 0;
  uint64_t moved_before = 0;
  c10::approx_time_t start = 0;
};

class Recording {
 public:
  void switch_on(bool on);
  std::unique_ptr<Frame> enter(const at::RecordFunction& function);
  std::vector<std::shared_ptr<ThreadCalls>> threads() const { return threads_; }
  std::mutex& mutex() { return mutex_; }

 private:
  const std::shared_ptr<ThreadCalls>& of_this_thread();
  int64_t node_of(ThreadCalls& thread, const at::RecordFunction& function);

  std::mutex mutex_;
  std::vector<std::shared_ptr<ThreadCalls>> threads_;
  std::atomic<int64_t> number_{0};  // of the recording
  std::mutex switch_mutex_;
  std::optional<at::CallbackHandle> callback_;
  std::optional<QueueingPaused> paused_;  // a call takes as long as its kernel
};

Recording& recording() {
  static auto* const one = new Recording();  // never destroyed: threads may still call at exit
  return *one;
}

const std::shared_ptr<ThreadCalls>& Recording::of_this_thread() {
  thread_local std::shared_ptr<ThreadCalls> calls;
  thread_local int64_t number = -1;
  if (C10_UNLIKELY(number != number_.load(std::memory_order_relaxed))) {
    const std::lock_guard lock(mutex_);
    number = number_.load(std::memory_order_relaxed);
    calls = threads_.emplace_back(std::make_shared<ThreadCalls>());
  }
  return calls;
}

bool is_on_device(const c10::IValue& value) {
  if (value.isDevice()) {
    return value.toDevice().is_privateuseone();
  }
  return !all_tensors(value, [](const at::Tensor& tensor) { return !tensor.is_privateuseone(); });
}

int64_t Recording::node_of(ThreadCalls& thread, const at::RecordFunction& function) {
  const int64_t parent = thread.innermost == nullptr ? -1 : thread.innermost->node;
  std::map<Callee, int64_t>& siblings = parent < 0 ? thread.roots : thread.nodes[parent].children;
  const auto arguments = function.inputs();
  const bool on_device = std::any_of(arguments.begin(), arguments.end(), is_on_device);
  const Callee callee{function.name(), function.overload_name(), on_device};
  if (const auto found = siblings.find(callee); C10_LIKELY(found != siblings.end())) {
    return found->second;
  }
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<int64_t>(thread.nodes.size());
  const Node& node = thread.nodes.emplace_back(function, parent, on_device);
  siblings.emplace(Callee{node.name.name, node.name.overload_name, on_device}, index);
  return index;
}

std::unique_ptr<Frame> Recording::enter(const at::RecordFunction& function) {
  auto frame = std::make_unique<Frame>();
  frame->thread = of_this_thread();
  frame->node = node_of(*frame->thread, function);
  frame->outer = std::exchange(frame->thread->innermost, frame.get());
  frame->fallbacks_before = fallbacks_begun();
  frame->host_kernels_before = host_kernels_begun();
  frame->moved_before = detail::bytes_moved;
  frame->start = c10::getApproximateTime();
  return frame;
}

void leave(Frame& frame) {
  const auto ticks = static_cast<int64_t>(c10::getApproximateTime() - frame.start);
  const int64_t fallbacks = fallbacks_begun() - frame.fallbacks_before;
  const int64_t host_kernels = host_kernels_begun() - frame.host_kernels_before;
  const int64_t own_ticks = ticks - frame.nested_ticks;
  const uint64_t moved = detail::bytes_moved - frame.moved_before;
  Node& node = frame.thread->nodes[frame.node];
  node.calls.add(1);
  node.ticks.add(ticks);
  node.own_ticks.add(own_ticks);
  node.moved.add(static_cast<int64_t>(moved - frame.nested_moved));
  if (fallbacks > frame.nested_fallbacks) {
    node.fell_back.add(1);
    node.fallback_ticks.add(own_ticks);
  } else if (host_kernels > frame.nested_host_kernels) {
    node.on_copies.add(1);
    node.copies_ticks.add(own_ticks);
  }
  if (frame.outer != nullptr) {
    frame.outer->nested_ticks += ticks;
    frame.outer->nested_fallbacks += fallbacks;
    frame.outer->nested_host_kernels += host_kernels;
    frame.outer->nested_moved += moved;
  }
  frame.thread->innermost = frame.outer;
}

// Not those of opsmith, which switch the recording or move what others compute, nor what PyTorch marks as a
// function and is no operator.
bool is_recorded(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ||
         (name.find("::") != std::string_view::npos && !name.starts_with("opsmith::"));
}

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& function) {
  if (detail::unrecorded_depth > 0 || !is_recorded(function)) {
    return nullptr;
  }
  return recording().enter(function);
}

void on_leave(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context != nullptr) {
    leave(static_cast<Frame&>(*context));
  }
}

void Recording::switch_on(bool on) {
  const std::lock_guard switching(switch_mutex_);
  if (callback_.has_value()) {
    at::removeCallback(*callback_);
    callback_.reset();
    paused_.reset();
  }
  if (on) {
    {
      const std::lock_guard lock(mutex_);
      threads_.clear();
      number_.fetch_add(1, std::memory_order_relaxed);
    }
    paused_.emplace();
    callback_ =
        at::addGlobalCallback(at::RecordFunctionCallback(&on_enter, &on_leave)
                                  .needsInputs(true)
                                  .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
}

using Numbers = std::vector<int64_t>;

// A column for each field of a node; parents are rows.
std::tuple<std::vector<std::string>, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers,
           Numbers, Numbers, Numbers>
recorded_calls() {
  std::vector<std::string> names;
  Numbers parents, backward, on_device, calls, nanoseconds, own, fell_back, fallback, on_copies, copies,
      moved;
  const auto to_nanoseconds = ticks_to_nanoseconds();
  const std::lock_guard lock(recording().mutex());
  for (const std::shared_ptr<ThreadCalls>& thread : recording().threads()) {
    const auto first = static_cast<int64_t>(names.size());
    for (const Node& node : thread->nodes) {
      names.push_back(plan_name(node.name));
      parents.push_back(node.parent < 0 ? -1 : first + node.parent);
      backward.push_back(node.is_backward ? 1 : 0);
      on_device.push_back(node.on_device ? 1 : 0);
      calls.push_back(node.calls.get());
      nanoseconds.push_back(to_nanoseconds(node.ticks.get()));
      own.push_back(to_nanoseconds(node.own_ticks.get()));
      fell_back.push_back(node.fell_back.get());
      fallback.push_back(to_nanoseconds(node.fallback_ticks.get()));
      on_copies.push_back(node.on_copies.get());
      copies.push_back(to_nanoseconds(node.copies_ticks.get()));
      moved.push_back(node.moved.get());
    }
  }
  return {names, parents,   backward, on_device, calls,  nanoseconds,
          own,   fell_back, fallback, on_copies, copies, moved};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("record_calls(bool on) -> ()", [](bool on) { recording().switch_on(on); });
  m.def(
      "recorded_calls() -> (str[] names, int[] parents, int[] backward, int[] on_device, int[] calls, "
      "int[] nanoseconds, int[] own_nanoseconds, int[] fell_back, int[] fallback_nanoseconds, "
      "int[] on_copies, int[] copies_nanoseconds, int[] moved)",
      &recorded_calls);
}

}  // namespace opsmith
