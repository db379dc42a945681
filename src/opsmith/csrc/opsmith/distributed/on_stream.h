// Another current stream for a while.
#pragma once

#include <c10/core/Stream.h>

#include <opsmith/device/stream.h>

namespace opsmith {

class OnStream {
 public:
  explicit OnStream(c10::Stream stream) : stream_(stream), previous_(exchange_stream(stream)) {}
  ~OnStream() { exchange_stream(c10::Stream(c10::Stream::UNSAFE, stream_.device(), previous_)); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::Stream stream_;
  int64_t previous_;
};

}  // namespace opsmith
