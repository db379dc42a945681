// The message of a lean kernel that fails, kept for the caller that turns it into an exception.
#pragma once

#include <stdexcept>

namespace opsmith {

// The text that was logged on this thread since clear_lean_failure(); empty if nothing was.
const char* lean_failure_text();
void clear_lean_failure();
// Keeps what an exception says that left a kernel, beside what was logged.
void add_lean_failure(const char* what);

// Thrown where ExecuTorch's runtime would end the process: a failed ET_CHECK.
class LeanAborted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace opsmith
