// The line of Python that called an operator, for messages about work that runs later.
#pragma once

#include <memory>
#include <string>

namespace torch {
struct CapturedTraceback;
}

namespace opsmith {

class CallingLine {
 public:
  // Of this thread, now.
  static CallingLine here();

  // The innermost line that is not PyTorch's, "train.py:12 in step". Not on a stream's thread: it takes the
  // interpreter's lock, whose owner may wait for the stream.
  std::string text() const;

 private:
  std::shared_ptr<torch::CapturedTraceback> frames_;
};

}  // namespace opsmith
