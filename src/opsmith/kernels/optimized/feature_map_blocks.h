// The blocks of feature maps (convolution_operands.h) that fit the caches.
#pragma once

#include <cstdint>

#include "../common/feature_map.h"
#include "convolution_operands.h"

namespace opsmith::optimized {

// One spatial dimension of a sum over the kernel: pixel q of `count` reads the map, for place k in the
// kernel, at index q · step + first + k · dilation, which may lie outside of it.
struct WindowDim {
  int64_t count;
  int64_t step = 1;
  int64_t first = 0;
  int64_t kernel_size = 0;
  int64_t dilation = 1;
  // Where place 0 and those after it are in the kernel, and the pixels in the result. Reversed, the last
  // place reads the first index.
  int64_t kernel_first = 0;
  int64_t kernel_step = 1;
  bool is_reversed = false;
  int64_t result_first = 0;
  int64_t result_step = 1;

  int64_t reach() const { return (kernel_size - 1) * dilation; }
};

// Pixels one after the other, of some samples.
struct Pixels {
  int64_t count[kSpatial];
  int64_t sample_stride;
  int64_t stride[kSpatial];

  int64_t of_sample() const { return count[0] * count[1] * count[2]; }
  // Those from `first` on, as runs with numbers from `at` on; how many runs there are, up to `pixels`.
  int64_t runs(int64_t first, int64_t pixels, int64_t at, Run* runs) const;
};

// The type of simd's functions that copy a row.
template <class T>
using CopyRows = void(const RowCopy<T>& rows);

// How a feature map is divided into blocks. Each has a part of one dimension, all of the others, and some
// samples.
template <class T>
class FeatureMapBlocks {
 public:
  struct Block {
    int64_t sample;
    int64_t samples;
    int64_t channel;
    int64_t begin;  // of the divided dimension
    int64_t end;
  };

  // Of so many channels each, one if `pairs` is false, or two in a unit. Where the map can be read as it
  // is, and `in_place` allows it, there is nothing to copy.
  FeatureMapBlocks(const FeatureMap<const T>& map, const WindowDim (&dims)[kSpatial], int64_t channels,
                   bool pairs, bool in_place);

  // How many there are of the batch, and the one of an index.
  int64_t blocks() const { return sample_blocks() * bands(); }
  Block block(int64_t index, int64_t channel) const;
  Pixels pixels(const Block& block) const;
  // The index of its first pixel along each dimension.
  void begin_of(const Block& block, int64_t (&begin)[kSpatial]) const;
  // The same division of another map into blocks.
  void divide_as(int64_t band, int64_t samples);
  int64_t band() const { return band_; }
  int64_t samples() const { return samples_; }
  int64_t most_pixels() const;

  // Units that a block needs, with its slack; none where it is read in place.
  int64_t size() const;
  bool is_in_place() const { return in_place_; }
  int64_t channel_stride() const { return channel_stride_; }
  // Where the units of a pixel begin in the order of channels and places in the kernel, from the pixel's own;
  // of all.
  void offsets(int64_t channels, int64_t* to) const;
  // The block's first pixel: in `memory`, or in the map.
  const float* fill(const Block& block, int64_t channels, float* memory, CopyRows<T>* copy) const;

 private:
  int64_t bands() const { return (dims_[divided_].count + band_ - 1) / band_; }
  int64_t sample_blocks() const { return (map_.batch + samples_ - 1) / samples_; }
  int64_t extent(int64_t d, int64_t count) const { return (count - 1) * step_[d] + reach_[d] + 1; }
  void set_strides();
  void copy_planes(RowCopy<T> planes, int64_t channels, CopyRows<T>* copy) const;

  FeatureMap<const T> map_;
  WindowDim dims_[kSpatial];
  int64_t channels_;  // in a block, in units
  bool pairs_;
  bool in_place_;
  int64_t divided_ = kSpatial - 1;
  int64_t band_ = 1;
  int64_t samples_ = 1;
  // Of the block: from a pixel to the next, in indices; of its map, between indices; and the kernel's reach.
  int64_t step_[kSpatial];
  int64_t source_step_[kSpatial];
  int64_t reach_[kSpatial];
  // In units.
  int64_t width_ = 0;  // of a row's phase
  int64_t pixel_stride_[kSpatial];
  int64_t row_stride_[kSpatial];
  int64_t sample_stride_ = 0;
  int64_t channel_stride_ = 0;
};

extern template class FeatureMapBlocks<float>;
extern template class FeatureMapBlocks<Bfloat16>;

}  // namespace opsmith::optimized
