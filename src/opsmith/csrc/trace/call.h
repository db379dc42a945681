// The kernel that a trace puts in front of another one, and the call of it that it records.
#pragma once

#include "log.h"
#include "record.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace opsmith::trace {

class RecordingKernel final : public c10::OperatorKernel {
 public:
  RecordingKernel(c10::SafeKernelFunction kernel, const c10::OperatorHandle& op, uint32_t number,
                  c10::DispatchKey key, Kind kind)
      : kernel_(std::move(kernel)),
        name_(op.schema().name().c_str()),
        arguments_(static_cast<uint32_t>(op.schema().arguments().size())),
        number_(number),
        key_(key),
        kind_(kind) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

  // The operator's name in its schema, which is one object for each operator.
  const char* name() const { return name_; }

 private:
  friend class Call;

  const c10::SafeKernelFunction kernel_;
  const char* const name_;
  const uint32_t arguments_;
  const uint32_t number_;
  const c10::DispatchKey key_;
  const Kind kind_;
};

// A call on the C++ stack while it runs.
class Call {
 public:
  Call(Log& log, const RecordingKernel& kernel, torch::jit::Stack* stack);
  ~Call() {
    log_.end(record_, !returned_);
    log_.ascend();
    log_.current = outer_;
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
