// See fallback_counts.h.
#include <opsmith/fallback/fallback_counts.h>

#include <opsmith/device/copy.h>
#include <opsmith/fallback/fallback_policy.h>
#include <opsmith/fallback/refusal.h>
#include <opsmith/fallback/owned_counter.h>
#include <opsmith/fallback/ticks.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace opsmith {

namespace detail {

struct FallbackCount {
  explicit FallbackCount(c10::OperatorName operator_name) : name(std::move(operator_name)) {}

  const c10::OperatorName name;
  OwnedCounter calls;
  OwnedCounter kernel_calls;  // of `calls`
  OwnedCounter denied;
  OwnedCounter ticks;
  OwnedCounter moved;
  // Under the lock of FallbackCounts: rare, or only when asked.
  std::map<std::string, int64_t> refusals;
  std::map<std::string, int64_t> callers;
};

}  // namespace detail

namespace {

using detail::FallbackCount;

struct Totals {
  int64_t calls = 0;
  int64_t kernel_calls = 0;
  int64_t denied = 0;
  int64_t ticks = 0;
  int64_t moved = 0;
  std::map<std::string, int64_t> refusals;
  std::map<std::string, int64_t> callers;

  void add(const FallbackCount& count) {
    calls += count.calls.get();
    kernel_calls += count.kernel_calls.get();
    denied += count.denied.get();
    ticks += count.ticks.get();
    moved += count.moved.get();
    for (const auto& [reason, times] : count.refusals) {
      refusals[reason] += times;
    }
    for (const auto& [place, times] : count.callers) {
      callers[place] += times;
    }
  }
};

// The counts of one thread, by the address of the operator's schema, or of the name that a kernel on copies
// has.
class ThreadCounts {
 public:
  ThreadCounts();
  ~ThreadCounts();
  ThreadCounts(const ThreadCounts&) = delete;
  ThreadCounts& operator=(const ThreadCounts&) = delete;

  FallbackCount& of(const c10::OperatorHandle& op) {
    const auto found = counts_.find(&op.schema());
    // An operator that is gone may have left its address to another.
    if (C10_LIKELY(found != counts_.end() && found->second->name == op.operator_name())) {
      return *found->second;
    }
    return add(&op.schema(), op.operator_name());
  }

  FallbackCount& of(const char* operator_name) {
    const auto found = counts_.find(operator_name);
    return found != counts_.end() ? *found->second : add(operator_name, parsed_name(operator_name));
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const std::unique_ptr<FallbackCount>& count : all_) {
      visit(*count);
    }
  }

 private:
  FallbackCount& add(const void* key, c10::OperatorName name);

  std::unordered_map<const void*, FallbackCount*> counts_;
  std::vector<std::unique_ptr<FallbackCount>> all_;  // written under the lock of FallbackCounts
};

class FallbackCounts {
 public:
  std::mutex& mutex() { return mutex_; }

  void enter(const ThreadCounts* thread) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(thread);
  }

  void leave(const ThreadCounts* thread) {
    const std::lock_guard lock(mutex_);
    add(ended_, *thread);
    threads_.erase(std::find(threads_.begin(), threads_.end(), thread));
  }

  std::unordered_map<c10::OperatorName, Totals> totals() {
    const std::lock_guard lock(mutex_);
    std::unordered_map<c10::OperatorName, Totals> sums = ended_;
    for (const ThreadCounts* thread : threads_) {
      add(sums, *thread);
    }
    return sums;
  }

  // ---- callers, on request

  bool asks_for_callers() const { return asks_for_callers_.load(std::memory_order_relaxed); }

  void ask_for_callers(bool ask, std::vector<std::string> left_out) {
    const std::lock_guard lock(mutex_);
    left_out_ = std::move(left_out);
    asks_for_callers_.store(ask, std::memory_order_relaxed);
  }

  std::string caller();

 private:
  static void add(std::unordered_map<c10::OperatorName, Totals>& sums, const ThreadCounts& thread) {
    thread.for_each([&](const FallbackCount& count) { sums[count.name].add(count); });
  }

  std::mutex mutex_;
  std::vector<const ThreadCounts*> threads_;
  std::unordered_map<c10::OperatorName, Totals> ended_;  // of threads that are no more
  std::vector<std::string> left_out_;                    // folders whose code is nobody's own
  std::atomic<bool> asks_for_callers_{false};
};

FallbackCounts& fallback_counts() {
  static auto* const counts = new FallbackCounts();  // never destroyed: threads may still count at exit
  return *counts;
}

ThreadCounts& thread_counts() {
  thread_local ThreadCounts counts;
  return counts;
}

ThreadCounts::ThreadCounts() {
  fallback_counts().enter(this);
}

ThreadCounts::~ThreadCounts() {
  fallback_counts().leave(this);
}

FallbackCount& ThreadCounts::add(const void* key, c10::OperatorName name) {
  auto count = std::make_unique<FallbackCount>(std::move(name));
  const std::lock_guard lock(fallback_counts().mutex());
  counts_[key] = count.get();
  return *all_.emplace_back(std::move(count));
}

// The frames of Python, the innermost first. Those of code that Inductor has generated are the lines of the
// program that it comes from, as torch::symbolize knows, which imports torch._inductor to ask; that takes a
// second where nothing has been compiled.
std::vector<std::pair<std::string, size_t>> python_frames() {
  std::vector<std::pair<std::string, size_t>> frames;
  for (const torch::jit::StackEntry& entry : torch::jit::tracer::pythonCallstack()) {
    const auto place = entry.range.file_line_col();
    if (place.has_value()) {
      frames.emplace_back(std::get<0>(*place), std::get<1>(*place));
    }
  }
  const auto is_inductors = [](const auto& frame) {
    return frame.first.find("/torch/_inductor/") != std::string::npos;
  };
  if (std::any_of(frames.begin(), frames.end(), is_inductors)) {
    const auto traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
    const torch::SymbolizedTracebacks symbolized = torch::symbolize({traceback.get()});
    frames.clear();
    for (const uint64_t index : symbolized.tracebacks.at(0)) {
      const auto& frame = symbolized.all_frames.at(index);
      frames.emplace_back(frame.filename, frame.lineno);
    }
  }
  return frames;
}

// The line of Python that led here: the innermost one that is in none of the folders left out. Without any
// Python, the node of the autograd graph whose backward runs.
std::string FallbackCounts::caller() {
  std::vector<std::string> left_out;
  {
    const std::lock_guard lock(mutex_);
    left_out = left_out_;
  }
  const auto is_left_out = [&](std::string_view file) {
    return std::any_of(left_out.begin(), left_out.end(),
                       [&](const std::string& folder) { return file.starts_with(folder); });
  };
  for (const auto& [file, line] : python_frames()) {
    if (!is_left_out(file)) {
      return c10::str(file, ":", line);
    }
  }
  if (const auto node = torch::autograd::get_current_node()) {
    return "backward of " + node->name();
  }
  return "";
}

void count_caller(FallbackCount& count) {
  std::string place = fallback_counts().caller();
  const std::lock_guard lock(fallback_counts().mutex());
  ++count.callers[std::move(place)];
}

// Of the counted calls of this thread that have ended.
constinit thread_local int64_t nested_ticks = 0;
constinit thread_local uint64_t nested_moved = 0;

constinit thread_local CountedHostKernel* innermost_kernel = nullptr;

}  // namespace

bool is_in_host_kernel() {
  return innermost_kernel != nullptr;
}

CountedCall::CountedCall(FallbackCount* count)
    : count_(count),
      nested_ticks_before_(nested_ticks),
      nested_moved_before_(nested_moved),
      moved_before_(detail::bytes_moved) {
  if (count != nullptr) {
    count->calls.add(1);
    if (C10_UNLIKELY(fallback_counts().asks_for_callers())) {
      count_caller(*count);
    }
  }
  start_ = c10::getApproximateTime();
}

uint64_t CountedCall::moved() const {
  return detail::bytes_moved - moved_before_;
}

CountedCall::~CountedCall() {
  if (count_ != nullptr) {
    const auto ticks = static_cast<int64_t>(c10::getApproximateTime() - start_);
    count_->ticks.add(ticks -
                      (std::exchange(nested_ticks, nested_ticks_before_ + ticks) - nested_ticks_before_));
    count_->moved.add(static_cast<int64_t>(
        moved() - (std::exchange(nested_moved, nested_moved_before_ + moved()) - nested_moved_before_)));
  }
}

CountedFallback::CountedFallback(const c10::OperatorHandle& op, const std::string* refusal,
                                 c10::DeviceIndex device)
    : CountedCall(&thread_counts().of(op)) {
  ++detail::fallbacks_begun;
  if (innermost_kernel != nullptr) {
    innermost_kernel->hand_over(op);
  }
  if (C10_UNLIKELY(refusal != nullptr)) {
    const std::lock_guard lock(fallback_counts().mutex());
    ++count_->refusals[*refusal];
  }
  if (profile::is_recording()) {
    work_.begin(full_name(op.operator_name()), device);
  }
}

CountedFallback::~CountedFallback() {
  work_.set_bytes(moved());
}

namespace {

// Applies the process's policy to a kernel on copies.
void apply_host_kernel_policy(const c10::OperatorName& name) {
  switch (fallback_permission(name)) {
    case Permission::kAsDescribed:
    case Permission::kAllowed:
      return;
    case Permission::kAllowedWithWarning:
      warn_of_host_kernel(name);
      return;
    case Permission::kDenied:
      const auto op =
          c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
      count_denied(op);
      throw_host_kernel_denied(op);
  }
}

FallbackCount* permitted(const char* operator_name) {
  if (operator_name == nullptr) {
    return nullptr;
  }
  if (host_kernels_are_overridden()) {
    apply_host_kernel_policy(parsed_name(operator_name));
  }
  return &thread_counts().of(operator_name);
}

}  // namespace

CountedHostKernel::CountedHostKernel(const char* operator_name)
    : CountedCall(permitted(operator_name)),
      outer_(innermost_kernel),
      work_(operator_name, profile::Kind::kHostKernel) {
  innermost_kernel = this;
  if (count_ != nullptr) {
    count_->kernel_calls.add(1);
    ++detail::host_kernels_begun;
  }
}

CountedHostKernel::~CountedHostKernel() {
  innermost_kernel = outer_;
  work_.set_bytes(moved());
}

void CountedHostKernel::hand_over(const c10::OperatorHandle& op) {
  if (count_ != nullptr && count_->name == op.operator_name()) {
    take_back();
  }
}

void CountedHostKernel::take_back() {
  if (count_ != nullptr) {
    count_->calls.add(-1);
    count_->kernel_calls.add(-1);
    --detail::host_kernels_begun;
  }
}

namespace {

// A copy that the host computes counts as a call of the fallback.
const std::string kNotOneRun = "the driver copies runs of bytes, and this copy casts or changes the layout";

void count_copy(c10::DeviceIndex device, c10::function_ref<void()> copy) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_copy_from", "");
  const CountedFallback counted(op, &kNotOneRun, device);
  copy();
}

[[maybe_unused]] const bool copies_are_counted = [] {
  observe_copies(count_copy);
  return true;
}();

}  // namespace

void count_denied(const c10::OperatorHandle& op) {
  FallbackCount& count = thread_counts().of(op);
  count.denied.add(1);
  if (fallback_counts().asks_for_callers()) {
    count_caller(count);
  }
}

namespace {

using TimesByText = c10::Dict<std::string, int64_t>;

TimesByText as_dict(const std::map<std::string, int64_t>& times) {
  TimesByText dict;
  for (const auto& [text, count] : times) {
    dict.insert(text, count);
  }
  return dict;
}

struct Columns {
  std::vector<std::string> operators;
  std::vector<int64_t> calls, kernel_calls, denied, nanoseconds, moved;
  c10::List<TimesByText> refusals, callers;
};

std::tuple<std::vector<std::string>, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
           std::vector<int64_t>, std::vector<int64_t>, c10::List<TimesByText>, c10::List<TimesByText>>
counts_in_columns() {
  Columns columns;
  const auto nanoseconds = ticks_to_nanoseconds();
  for (const auto& [name, totals] : fallback_counts().totals()) {
    columns.operators.push_back(plan_name(name));
    columns.calls.push_back(totals.calls);
    columns.kernel_calls.push_back(totals.kernel_calls);
    columns.denied.push_back(totals.denied);
    columns.nanoseconds.push_back(nanoseconds(totals.ticks));
    columns.moved.push_back(totals.moved);
    columns.refusals.push_back(as_dict(totals.refusals));
    columns.callers.push_back(as_dict(totals.callers));
  }
  return {columns.operators,   columns.calls, columns.kernel_calls, columns.denied,
          columns.nanoseconds, columns.moved, columns.refusals,     columns.callers};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def(
      "fallback_counts() -> (str[] operators, int[] calls, int[] kernel_calls, int[] denied, "
      "int[] nanoseconds, int[] moved, Dict(str, int)[] refusals, Dict(str, int)[] callers)",
      &counts_in_columns);
  m.def("ask_for_fallback_callers(bool ask, str[] left_out) -> ()",
        [](bool ask, std::vector<std::string> left_out) {
          fallback_counts().ask_for_callers(ask, std::move(left_out));
        });
  // What Python moved for the call that it is in.
  m.def("count_moved(int bytes) -> ()", [](int64_t bytes) { count_moved(static_cast<size_t>(bytes)); });
}

}  // namespace opsmith
