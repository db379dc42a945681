// For kernels that find out only when they are called that they cannot compute something: a shape that the
// device's library does not take, a table that is full.
//
//   at::Tensor& topk_out(...) {
//     if (k > 1024) {
//       opsmith::unsupported("k is above 1024, the most that the unit sorts");
//     }
//
// With `on_error: fallback` in the kernel's entry the operator then runs on the CPU, and is counted with the
// reason; without it the caller gets a NotImplementedError. Refuse before anything is written: arguments, in
// place and `out` too, are given to the CPU as the kernel leaves them.
#pragma once

#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

// Only unsupported() throws it. Other exceptions are the kernel's failures, which no fallback hides.
class Unsupported : public c10::NotImplementedError {
 public:
  explicit Unsupported(std::string reason)
      : c10::NotImplementedError(
            c10::SourceLocation{__func__, __FILE__, __LINE__},
            c10::str(
                "the kernel refuses: ", reason,
                "\n  remedy: to run such calls on the CPU, add `on_error: fallback` to the kernel's entry")),
        reason_(std::move(reason)) {}

  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// Throws Unsupported: `reason` says what the kernel does not take.
[[noreturn]] inline void unsupported(std::string reason) {
  throw Unsupported(std::move(reason));
}

}  // namespace opsmith
