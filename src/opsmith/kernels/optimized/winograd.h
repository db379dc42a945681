// Convolutions with a 3 × 3 kernel and a stride of 1 in fewer multiplications: Winograd's F(2×2, 3×3) as in
// A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
//
// Four pixels cost 16 products for each pair of channels, where the sum over the kernel takes 36. Its terms
// are sums of at most four elements, so that float32 rounds about as it does there. A source that is not
// finite spreads to the pixels of its tile: such results are refused.
#pragma once

#include <cstdint>

#include "../common/feature_map.h"
#include "feature_map_blocks.h"

namespace opsmith::optimized {

// The last two dimensions of both maps. The weight of a pixel's row and channel begins at the place that
// meets the source's lowest index, `first` from the pixel's own.
struct WinogradProduct {
  FeatureMap<const float> source;
  FeatureMap<float> result;
  int64_t first[2];
  const float* weight;
  int64_t row_stride;
  int64_t channel_stride;
  int64_t place_stride[2];
  const float* bias;  // of the result's channels, or null
};

// Whether it is faster than the sum over the kernel.
bool winograd_pays(const WinogradProduct& product);

enum class WinogradEnd { kDone, kNotFinite, kNoMemory };

// Without memory the context has failed. A result that is not finite has to be calculated anew.
WinogradEnd multiply_by_winograd(executorch::runtime::KernelRuntimeContext& context,
                                 const WinogradProduct& product);

}  // namespace opsmith::optimized
