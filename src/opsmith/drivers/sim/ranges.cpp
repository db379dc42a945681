// See ranges.h; the exported functions are described in sim.h.
#include "ranges.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>

#include "sim.h"

namespace sim::ranges {
namespace {

constinit thread_local int open_ranges = 0;

constinit std::atomic<bool> is_recorded{false};
constinit std::mutex mutex;
// Never destroyed: threads may still open ranges while the process ends.
std::string& record() {
  static auto* const text = new std::string;
  return *text;
}

void keep(const char* sign, const char* text) {
  if (is_recorded.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex);
    record().append(sign).append(text).append("\n");
  }
}

}  // namespace

void push(const char* text) {
  keep("+", text);
  ++open_ranges;
}

bool pop() {
  if (open_ranges == 0) {
    return false;
  }
  keep("-", "");
  --open_ranges;
  return true;
}

}  // namespace sim::ranges

extern "C" {

__attribute__((visibility("default"))) void opsmith_sim_record_ranges(int on) {
  using namespace sim::ranges;
  const std::lock_guard lock(mutex);
  if (on != 0) {
    record().clear();
  }
  is_recorded.store(on != 0, std::memory_order_relaxed);
}

__attribute__((visibility("default"))) size_t opsmith_sim_recorded_ranges(char* text, size_t bytes) {
  using namespace sim::ranges;
  const std::lock_guard lock(mutex);
  if (bytes > 0) {
    const size_t fitting = std::min(record().size(), bytes - 1);
    std::memcpy(text, record().data(), fitting);
    text[fitting] = '\0';
  }
  return record().size();
}

}  // extern "C"
