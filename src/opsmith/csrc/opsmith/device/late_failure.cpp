// See late_failure.h.
#include <opsmith/device/late_failure.h>

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/profiler/combined_traceback.h>

namespace opsmith {

namespace {

struct LateFailure {
  std::exception_ptr thrown;
  const char* operator_name;
  std::shared_ptr<torch::CapturedTraceback> caller;
};

// The first one: others follow from it.
std::mutex failure_mutex;
std::optional<LateFailure> late_failure;

// The folder of PyTorch's own Python code, with a slash at its end.
const std::string& torch_folder() {
  static const std::string folder = [] {
    Dl_info info{};
    const bool found = dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0;
    const std::string library = found ? info.dli_fname : "";
    const size_t end = library.rfind("/lib/");
    return end == std::string::npos ? std::string("/torch/") : library.substr(0, end + 1);
  }();
  return folder;
}

// The innermost line of Python that is not PyTorch's. Not on a stream's thread: it takes the interpreter's
// lock, whose owner may wait for the stream.
std::string place_of(torch::CapturedTraceback& caller) {
  const torch::SymbolizedTracebacks found = torch::symbolize({&caller});
  std::string line = "a thread without Python code";
  for (const uint64_t index : found.tracebacks.at(0)) {
    const torch::unwind::Frame& frame = found.all_frames[index];
    line = c10::str(frame.filename, ":", frame.lineno, " in ", frame.funcname);
    if (!frame.filename.starts_with(torch_folder())) {
      break;
    }
  }
  return line;
}

}  // namespace

void keep_late_failure(std::exception_ptr thrown, const char* operator_name,
                       std::shared_ptr<torch::CapturedTraceback> caller) noexcept {
  const std::lock_guard lock(failure_mutex);
  if (!late_failure.has_value()) {
    late_failure = {std::move(thrown), operator_name, std::move(caller)};
    detail::late_failure_is_kept.store(true, std::memory_order_release);
  }
}

namespace detail {

std::atomic<bool> late_failure_is_kept = false;

void throw_late_failure() {
  std::optional<LateFailure> failure;
  {
    const std::lock_guard lock(failure_mutex);
    failure = std::exchange(late_failure, std::nullopt);
    late_failure_is_kept.store(false, std::memory_order_release);
  }
  if (!failure.has_value()) {
    return;  // another thread raises it
  }
  const std::string context =
      c10::str("a queued call, ", failure->operator_name, " at ", place_of(*failure->caller),
               ", failed when it ran; OPSMITH_LAUNCH_BLOCKING=1 raises such failures from the calls");
  try {
    std::rethrow_exception(failure->thrown);
  } catch (c10::Error& error) {
    error.add_context(context);
    throw;
  } catch (const std::exception& error) {
    TORCH_CHECK(false, failure->operator_name, ": ", error.what(), " (", context, ")");
  }
}

}  // namespace detail

}  // namespace opsmith
