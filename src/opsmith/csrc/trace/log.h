// The log of one thread: records in a file that is mapped into memory, so that nothing is lost however the
// process ends.
//
// Note [A file is mapped while its thread has pinned the log]
// One thread ends a trace while others are anywhere. A log is freed by its own thread only, or after that
// thread's end; its file is unmapped by the thread that ends the trace, so that idle threads hold none. A
// thread therefore pins its log, and then looks whether the trace is being closed; the other one says that it
// is closed, and then looks whether the log is pinned. One of them sees the other. A file that is pinned then
// is unmapped by its thread at the last unpin(). To write a record, and all else that reaches the file, the
// log must be pinned.
#pragma once

#include "record.h"
#include "session.h"

#include <ATen/core/stack.h>
#include <c10/util/ApproximateClock.h>

#include <memory>
#include <optional>
#include <vector>

namespace opsmith::trace {

class Call;

// The names of operators that this thread has seen, by address.
class Seen {
 public:
  bool has(const char* name) const {
    for (size_t i = slot(name);; i = (i + 1) & (names_.size() - 1)) {
      if (names_[i] == name) {
        return true;
      }
      if (names_[i] == nullptr) {
        return false;
      }
    }
  }
  void add(const char* name);
  void clear();

 private:
  size_t slot(const char* name) const {
    return (reinterpret_cast<uintptr_t>(name) * 0x9E3779B97F4A7C15U >> 20) & (names_.size() - 1);
  }

  std::vector<const char*> names_ = std::vector<const char*>(1024);
  size_t count_ = 0;
};

class Log {
 public:
  // Null where the file cannot be written.
  static std::unique_ptr<Log> create(Session& session);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  Session& session() { return session_; }
  bool records() const { return inside_ > 0; }

  // ---- whether the file is mapped

  // Keeps the file mapped until unpin(), or returns false where it may not be any more. By the log's thread.
  bool pin() {
    const uint32_t pins = pins_.load(std::memory_order_relaxed);
    pins_.store(pins + 1, pins == 0 ? std::memory_order_seq_cst : std::memory_order_relaxed);
    if (C10_LIKELY(pins != 0 || !session_.closing())) {
      return true;
    }
    unpin();
    return false;
  }
  void unpin() {
    const uint32_t pins = pins_.load(std::memory_order_relaxed) - 1;
    pins_.store(pins, pins == 0 ? std::memory_order_seq_cst : std::memory_order_relaxed);
    if (C10_UNLIKELY(pins == 0 && abandoned_.load(std::memory_order_seq_cst))) {
      finish();
    }
  }
  bool is_pinned() const { return pins_.load(std::memory_order_seq_cst) != 0; }

  // Closes the file, once.
  void finish();

  // By the thread that ends the trace, after Session::begin_closing(): closes the file, or has unpin() do it.
  void end_of_trace();

  // ---- what is written

  // Begins a record; null where there is no room.
  Record* begin(How how, uint32_t name) {
    if (C10_UNLIKELY(room_ == 0) && !more_room()) {
      return nullptr;
    }
    if (C10_UNLIKELY(used_ + sizeof(Record) + kMostDetails > capacity_) && !grow()) {
      ++header_->dropped;
      return nullptr;
    }
    --room_;
    auto* const record = reinterpret_cast<Record*>(base_ + used_);
    used_ += sizeof(Record);
    record->name = name;
    record->how = how;
    record->depth = static_cast<uint16_t>(depth_);
    record->device_type = -1;
    record->start = now();
    header_->used = used_;
    return record;
  }

  void end(Record* record, bool raised) const {
    if (C10_LIKELY(record != nullptr)) {
      record->end = now();
      if (C10_UNLIKELY(raised)) {
        record->flags |= kRaised;
      }
    }
  }

  // Writes the tensors among the last `count` values as details of `record`, which must be the latest one.
  // A tensor is a word of dtype, device type, device index and number of dimensions, and a word for each of
  // its sizes. The number of dimensions is kNoSizes where sizes are not known.
  void describe(Record& record, const torch::jit::Stack& stack, size_t count);

  // Writes a word of details of the latest record.
  void detail(Record& record, uint64_t word) {
    *reinterpret_cast<uint64_t*>(base_ + used_) = word;
    used_ += sizeof(word);
    header_->used = used_;
    ++record.words;
  }

  // Ticks since `start` were ours, and are taken out of this thread's time.
  void leave_out(uint64_t start) { left_out_ += c10::getApproximateTime() - start; }

  // ---- what this thread is inside of

  void descend() { ++depth_; }
  void ascend() { --depth_; }

  void announce(const char* name, const c10::IValue* inputs) {
    announced_ = name;
    announced_inputs_ = inputs;
  }
  // How the operator `name` came to be called with `stack`.
  How how(const char* name, const torch::jit::Stack* stack);

  // The log is pinned by who enters, and unpinned when that is left.
  void enter_node(uint32_t name, uint64_t sequence, uint64_t forward_thread);
  void leave_node();
  void enter_module(uint32_t name);
  void leave_module(bool raised);

  uint32_t number_of(std::string_view name);

  bool left_by_thread = false;  // under the session's mutex
  uint64_t interpositions = 0;  // how many times all operators were to be looked at anew
  Seen seen;
  Call* current = nullptr;

  static constexpr uint64_t kNoSizes = 255;

 private:
  static constexpr uint64_t kMostWords = 60;
  static constexpr uint64_t kMostDetails = kMostWords * sizeof(uint64_t);

  Log(Session& session, int file, char* base, uint64_t range);
  uint64_t now() const { return c10::getApproximateTime() - left_out_; }
  bool more_room();
  bool grow();
  // Whether a boxed kernel calls with the values that it was called with.
  bool is_passed_on(const torch::jit::Stack* stack) const;
  bool describe(Record& record, const at::Tensor& tensor);

  struct Node {
    Record* record;
    bool enters;
  };
  struct Module {
    Record* record;
    uint64_t first;  // sequence number
  };

  Session& session_;
  std::atomic<uint32_t> pins_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> finished_{false};
  const int process_;
  const int file_;
  char* const base_;
  const uint64_t range_;
  Header* const header_;
  uint64_t left_out_ = 0;
  uint64_t used_ = 0;
  uint64_t capacity_ = 0;
  int64_t room_ = 0;
  uint32_t depth_ = 0;
  uint32_t inside_;
  const char* announced_ = nullptr;
  const c10::IValue* announced_inputs_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<Module> modules_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

// The calling thread's log of the trace that runs; null where none does.
Log* current_log();

// The same, where it has one already.
Log* opened_log();

// The calling thread's log, pinned; null where no trace runs or it is being closed.
inline Log* pinned_log() {
  Log* const log = current_log();
  return log != nullptr && log->pin() ? log : nullptr;
}

// In the child of a fork, whose parent goes on with the log.
void forget_log();

}  // namespace opsmith::trace
