// Batches of images of bytes with their channels innermost, which is how kernels compute on them; whoever has
// another layout is copied.
#pragma once

#include "../common/channels_innermost.h"
#include "../common/dims.h"
#include "../common/temporary.h"

#include <cstdint>

namespace opsmith::quantized {

// body(offset in the tensor of an image's pixel, its number)
template <class Body>
void for_pixels(const Tensor& t, const Body& body) {
  int64_t pixel = 0;
  for (int64_t n = 0; n < t.sizes()[0]; ++n) {
    for (int64_t y = 0; y < t.sizes()[2]; ++y) {
      const int64_t row = n * t.strides()[0] + y * t.strides()[2];
      for (int64_t x = 0; x < t.sizes()[3]; ++x, ++pixel) {
        body(row + x * t.strides()[3], pixel);
      }
    }
  }
}

// The tensor's bytes, or a copy of them. Null without memory.
inline Temporary<uint8_t> channels_innermost(KernelRuntimeContext& context, const Tensor& t) {
  const auto bytes = static_cast<uint8_t*>(t.mutable_data_ptr());
  if (has_channels_innermost(t)) {
    return Temporary<uint8_t>(bytes);
  }
  auto copy = temporary<uint8_t>(context, t.numel());
  uint8_t* const to = copy;
  const int64_t channels = t.sizes()[1], stride = t.strides()[1];
  if (to != nullptr) {
    for_pixels(t, [&](int64_t offset, int64_t pixel) {
      for (int64_t c = 0; c < channels; ++c) {
        to[pixel * channels + c] = bytes[offset + c * stride];
      }
    });
  }
  return copy;
}

// Where to put a result, which `put_back` then gives to a tensor of another layout. Null without memory.
inline Temporary<uint8_t> place_for_image(KernelRuntimeContext& context, const Tensor& out) {
  return has_channels_innermost(out) ? Temporary<uint8_t>(static_cast<uint8_t*>(out.mutable_data_ptr()))
                                     : temporary<uint8_t>(context, out.numel());
}

inline void put_back(const uint8_t* from, const Tensor& out) {
  const auto bytes = static_cast<uint8_t*>(out.mutable_data_ptr());
  if (from == bytes) {
    return;
  }
  const int64_t channels = out.sizes()[1], stride = out.strides()[1];
  for_pixels(out, [&](int64_t offset, int64_t pixel) {
    for (int64_t c = 0; c < channels; ++c) {
      bytes[offset + c * stride] = from[pixel * channels + c];
    }
  });
}

// How a window moves over an image along height and width; a list of one number stands for both.
struct Window2d {
  int64_t kernel[2], stride[2], padding[2], dilation[2];

  SlidingWindow along(int64_t d) const { return {kernel[d], stride[d], padding[d], dilation[d]}; }
};

// That the lists make one; false: the call has been rejected.
inline bool window_of(KernelRuntimeContext& context, const char* name, IntList kernel, IntList stride,
                      IntList padding, IntList dilation, Window2d& window) {
  for (const auto& list : {kernel, stride, padding, dilation}) {
    OPSMITH_CHECK(context, list.size() == 1 || list.size() == 2, InvalidArgument, false,
                  "%s: kernel, stride, padding and dilation have 1 or 2 numbers, not %zu", name, list.size());
  }
  for (size_t d = 0; d < 2; ++d) {
    const auto of = [d](IntList list) { return list[list.size() == 1 ? 0 : d]; };
    window.kernel[d] = of(kernel);
    window.stride[d] = of(stride);
    window.padding[d] = of(padding);
    window.dilation[d] = of(dilation);
    const SlidingWindow along = window.along(static_cast<int64_t>(d));
    OPSMITH_CHECK(context, along.is_valid() && along.is_taken(), InvalidArgument, false,
                  "%s: kernel, stride and dilation have to be positive, and padding not negative", name);
  }
  return true;
}

}  // namespace opsmith::quantized
