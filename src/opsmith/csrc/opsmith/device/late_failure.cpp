// See late_failure.h.
#include <opsmith/device/late_failure.h>

#include <mutex>
#include <optional>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

namespace {

struct LateFailure {
  std::exception_ptr thrown;
  const char* operator_name;
  CallingLine line;
};

// The first one: others follow from it.
std::mutex failure_mutex;
std::optional<LateFailure> late_failure;

}  // namespace

void keep_late_failure(std::exception_ptr thrown, const char* operator_name, CallingLine line) noexcept {
  const std::lock_guard lock(failure_mutex);
  if (!late_failure.has_value()) {
    late_failure = {std::move(thrown), operator_name, std::move(line)};
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
      c10::str("a queued call, ", failure->operator_name, " at ", failure->line.text(),
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
