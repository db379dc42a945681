// Scales and zero points: one for all elements, or one for each channel, and the loop over elements with
// theirs.
#pragma once

#include "../common/parallel.h"
#include "../common/temporary.h"
#include "quantized_dtypes.h"

#include <algorithm>
#include <cstdint>

namespace opsmith::quantized {

// Of elements in memory's order, `inner` after one another share a channel, and there are `count` channels,
// over and over. Every dense layout is of this form: `inner` is the channel dimension's stride.
struct Channels {
  int64_t count;
  int64_t inner;
};

// The least work for a thread, in elements.
inline constexpr int64_t kGrain = 16384;

// Pieces of elements begin…end of which each has one channel: body(channel, begin, n), n at most kBlock.
template <class Body>
void for_pieces(const Channels& channels, int64_t begin, int64_t end, const Body& body) {
  int64_t channel = begin / channels.inner % channels.count;
  int64_t left = channels.inner - begin % channels.inner;
  while (begin < end) {
    const int64_t row = std::min(left, end - begin);
    for (int64_t done = 0; done < row; done += kBlock) {
      body(channel, begin + done, std::min(kBlock, row - done));
    }
    begin += row;
    left = channels.inner;
    channel = channel + 1 == channels.count ? 0 : channel + 1;
  }
}

// Short rows are not worth a call each: their parameters are repeated for each element over a whole period of
// the channels, or over several.
inline bool has_short_rows(const Channels& channels) {
  return channels.count > 1 && channels.inner < 128;
}

// The length for which to repeat them.
inline int64_t period_of(const Channels& channels) {
  const int64_t once = channels.count * channels.inner;
  return once >= kBlock ? once : kBlock / once * once;
}

// Pieces of elements begin…end that lie within one period: body(position in it, begin, n), n at most kBlock.
template <class Body>
void for_periods(int64_t period, int64_t begin, int64_t end, const Body& body) {
  while (begin < end) {
    const int64_t position = begin % period;
    const int64_t n = std::min({kBlock, period - position, end - begin});
    body(position, begin, n);
    begin += n;
  }
}

// The channels of dimension `axis`, which may be negative; count 0, with the call rejected, where there is
// none or there are not as many parameters. A tensor without elements has one channel.
Channels channels_along(KernelRuntimeContext& context, const char* name, const Tensor& input, int64_t axis,
                        const Tensor& scales, const Tensor* zero_points);

// The channels of tokens: all elements of the last dimension share one.
Channels channels_of_tokens(KernelRuntimeContext& context, const char* name, const Tensor& input,
                            const Tensor& scales, const Tensor& zero_points);

}  // namespace opsmith::quantized
