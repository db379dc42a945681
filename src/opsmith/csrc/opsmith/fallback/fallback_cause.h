// Why fallback() is called where that is not for want of a kernel for the operator that it is called with.
#pragma once

#include <string>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

namespace opsmith {

// While it lives, the next call of fallback() by this thread is for this cause.
class FallbackCause {
 public:
  // A kernel refused.
  explicit FallbackCause(const std::string& refusal) : FallbackCause(nullptr, &refusal) {}
  // The operator `served` is called, and computed by another one's CPU kernel.
  explicit FallbackCause(const c10::OperatorHandle& served) : FallbackCause(&served, nullptr) {}
  ~FallbackCause() { next = previous_; }
  FallbackCause(const FallbackCause&) = delete;
  FallbackCause& operator=(const FallbackCause&) = delete;

  // The cause of the call that has just begun; null for want of a kernel.
  static const FallbackCause* take() { return std::exchange(next, nullptr); }

  const c10::OperatorHandle* served() const { return served_; }
  const std::string* refusal() const { return refusal_; }

 private:
  FallbackCause(const c10::OperatorHandle* served, const std::string* refusal)
      : served_(served), refusal_(refusal), previous_(std::exchange(next, this)) {}

  inline static thread_local const FallbackCause* next = nullptr;

  const c10::OperatorHandle* served_;
  const std::string* refusal_;
  const FallbackCause* previous_;
};

}  // namespace opsmith
