// A call of a recorded kernel while it runs, on the C++ stack.
#pragma once

#include "log.h"
#include "record.h"

#include <ATen/core/stack.h>

namespace opsmith::trace {

// A kernel as it is recorded.
struct Recorded {
  const char* name;    // the operator's in its schema, which is one object for each operator
  uint32_t number;     // of the name with its overload
  uint32_t arguments;  // of the operator
  c10::DispatchKey key;
  Kind kind;
};

class Call {
 public:
  // `log` is pinned, and is unpinned at the end.
  Call(Log& log, const Recorded& kernel, torch::jit::Stack* stack);
  ~Call() {
    log_.end(record_, !returned_);
    log_.ascend();
    log_.current = outer_;
    log_.unpin();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void returned() { returned_ = true; }

  const char* name() const { return name_; }
  const torch::jit::Stack* stack() const { return stack_; }

 private:
  Log& log_;
  Call* const outer_;
  const char* const name_;
  const torch::jit::Stack* const stack_;
  Record* record_;
  bool returned_ = false;
};

}  // namespace opsmith::trace
