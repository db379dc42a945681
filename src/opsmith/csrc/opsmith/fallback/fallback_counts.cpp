// See fallback_counts.h.
#include <opsmith/fallback/fallback_counts.h>

#include <opsmith/profile/owned_counter.h>
#include <opsmith/fallback/refusal.h>
#include <opsmith/profile/ticks.h>

#include <torch/csrc/autograd/function.h>
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
  int64_t denied = 0;
  int64_t ticks = 0;
  int64_t moved = 0;
  std::map<std::string, int64_t> refusals;
  std::map<std::string, int64_t> callers;

  void add(const FallbackCount& count) {
    calls += count.calls.get();
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

// The counts of one thread, by the address of the operator's schema.
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
    return add(op);
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const std::unique_ptr<FallbackCount>& count : all_) {
      visit(*count);
    }
  }

 private:
  FallbackCount& add(const c10::OperatorHandle& op);

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

FallbackCount& ThreadCounts::add(const c10::OperatorHandle& op) {
  auto count = std::make_unique<FallbackCount>(op.operator_name());
  const std::lock_guard lock(fallback_counts().mutex());
  counts_[&op.schema()] = count.get();
  return *all_.emplace_back(std::move(count));
}

// The line of Python that led here: the innermost one that is in none of the folders left out. Without any
// Python, the node of the autograd graph whose backward runs.
std::string FallbackCounts::caller() {
  const auto traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  const torch::SymbolizedTracebacks symbolized = torch::symbolize({traceback.get()});
  std::vector<std::string> left_out;
  {
    const std::lock_guard lock(mutex_);
    left_out = left_out_;
  }
  const auto is_left_out = [&](std::string_view file) {
    return std::any_of(left_out.begin(), left_out.end(),
                       [&](const std::string& folder) { return file.starts_with(folder); });
  };
  for (const uint64_t index : symbolized.tracebacks.at(0)) {  // innermost first
    const auto& frame = symbolized.all_frames.at(index);
    if (!is_left_out(frame.filename)) {
      return c10::str(frame.filename, ":", frame.lineno);
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

}  // namespace

CountedFallback::CountedFallback(const c10::OperatorHandle& op, const std::string* refusal,
                                 c10::DeviceIndex device)
    : count_(thread_counts().of(op)), moved_before_(detail::bytes_moved) {
  count_.calls.add(1);
  ++detail::fallbacks_begun;
  if (C10_UNLIKELY(refusal != nullptr)) {
    const std::lock_guard lock(fallback_counts().mutex());
    ++count_.refusals[*refusal];
  }
  if (C10_UNLIKELY(fallback_counts().asks_for_callers())) {
    count_caller(count_);
  }
  start_ = c10::getApproximateTime();
  if (profile::is_recording()) {
    work_.begin(full_name(op.operator_name()), device);
  }
}

CountedFallback::~CountedFallback() {
  count_.ticks.add(static_cast<int64_t>(c10::getApproximateTime() - start_));
  const uint64_t moved = detail::bytes_moved - moved_before_;
  count_.moved.add(static_cast<int64_t>(moved));
  work_.set_bytes(moved);
}

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
  std::vector<int64_t> calls, denied, nanoseconds, moved;
  c10::List<TimesByText> refusals, callers;
};

std::tuple<std::vector<std::string>, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
           std::vector<int64_t>, c10::List<TimesByText>, c10::List<TimesByText>>
counts_in_columns() {
  Columns columns;
  const auto nanoseconds = ticks_to_nanoseconds();
  for (const auto& [name, totals] : fallback_counts().totals()) {
    columns.operators.push_back(plan_name(name));
    columns.calls.push_back(totals.calls);
    columns.denied.push_back(totals.denied);
    columns.nanoseconds.push_back(nanoseconds(totals.ticks));
    columns.moved.push_back(totals.moved);
    columns.refusals.push_back(as_dict(totals.refusals));
    columns.callers.push_back(as_dict(totals.callers));
  }
  return {columns.operators, columns.calls,    columns.denied, columns.nanoseconds,
          columns.moved,     columns.refusals, columns.callers};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def(
      "fallback_counts() -> (str[] operators, int[] calls, int[] denied, int[] nanoseconds, int[] moved, "
      "Dict(str, int)[] refusals, Dict(str, int)[] callers)",
      &counts_in_columns);
  m.def("ask_for_fallback_callers(bool ask, str[] left_out) -> ()",
        [](bool ask, std::vector<std::string> left_out) {
          fallback_counts().ask_for_callers(ask, std::move(left_out));
        });
}

}  // namespace opsmith
