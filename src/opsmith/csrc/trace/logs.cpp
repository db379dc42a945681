// The logs of a session's threads. See session.h.
#include "session.h"

#include "log.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

namespace opsmith::trace {

Log* Session::open_log() {
  // Locked while the file is made: once close() has returned the folder is read.
  const std::lock_guard lock(mutex_);
  if (closed_) {
    return nullptr;
  }
  std::unique_ptr<Log> log = Log::create(*this);
  return log == nullptr ? nullptr : logs_.emplace_back(log.release());
}

void Session::release(Log* log) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    delete log;
  } else {
    log->finish();
    log->left_by_thread = true;
  }
}

bool Session::others_are_recording() const {
  const std::lock_guard lock(mutex_);
  const Log* const own = opened_log();
  return std::any_of(logs_.begin(), logs_.end(),
                     [&](const Log* log) { return log != own && log->is_pinned(); });
}

void Session::close() {
  const std::lock_guard lock(mutex_);
  ::close(names_);
  names_ = -1;
  for (Log* const log : logs_) {
    log->end_of_trace();
    if (log->left_by_thread) {
      delete log;
    }
  }
  logs_.clear();
  closed_ = true;
}

}  // namespace opsmith::trace
