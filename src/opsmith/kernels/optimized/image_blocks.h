// The blocks of images (convolution_operands.h) that fit the caches.
#pragma once

#include <cstdint>

#include "../common/image.h"
#include "convolution_operands.h"

namespace opsmith::optimized {

// One spatial dimension of a sum over taps: pixel q of `count` reads the image, for each tap, at index
// q · step + first + tap · tap_step, which may lie outside of it.
struct Axis {
  int64_t count;
  int64_t step = 1;
  int64_t first = 0;
  int64_t taps = 0;
  int64_t tap_step = 1;
  // Where tap 0 and those after it are in the kernel, and the pixels in the result.
  int64_t kernel_first = 0;
  int64_t kernel_step = 1;
  int64_t result_first = 0;
  int64_t result_step = 1;

  int64_t reach() const { return (taps - 1) * tap_step; }
};

// Pixels one after the other, of some images.
struct Pixels {
  int64_t count[kSpatial];
  int64_t image_stride;
  int64_t stride[kSpatial];

  int64_t of_image() const { return count[0] * count[1] * count[2]; }
  // Those from `first` on, as runs with numbers from `at` on; how many runs there are, up to `pixels`.
  int64_t runs(int64_t first, int64_t pixels, int64_t at, Run* runs) const;
};

// What simd's functions copy a row with.
template <class T>
using CopyRows = void(const RowCopy<T>& rows);

// How an image is divided into blocks. Each has a part of one axis, all of the others, and some images.
template <class T>
class ImageBlocks {
 public:
  struct Block {
    int64_t image;
    int64_t images;
    int64_t channel;
    int64_t begin;  // of the divided axis
    int64_t end;
  };

  // Of so many channels each, one if `pairs` is false, or two in a unit. Where the image can be read as it
  // is, and `in_place` allows it, there is nothing to copy.
  ImageBlocks(const Image<const T>& image, const Axis (&axes)[kSpatial], int64_t channels, bool pairs,
              bool in_place);

  // How many there are of the batch, and the one of an index.
  int64_t blocks() const { return image_blocks() * bands(); }
  Block block(int64_t index, int64_t channel) const;
  Pixels pixels(const Block& block) const;
  // The index of its first pixel along each axis.
  void begin_of(const Block& block, int64_t (&begin)[kSpatial]) const;
  // The same division of another image into blocks.
  void divide_as(int64_t band, int64_t images);
  int64_t band() const { return band_; }
  int64_t images() const { return images_; }
  int64_t most_pixels() const;

  // Units that a block needs, with its slack; none where it is read in place.
  int64_t size() const;
  bool is_in_place() const { return in_place_; }
  int64_t channel_stride() const { return channel_stride_; }
  // Where the units of a pixel begin in the order of channels and taps, from the pixel's own; of all taps.
  void offsets(int64_t channels, int64_t* to) const;
  // The block's first pixel: in `memory`, or in the image.
  const float* fill(const Block& block, int64_t channels, float* memory, CopyRows<T>* copy) const;

 private:
  int64_t bands() const { return (axis_[divided_].count + band_ - 1) / band_; }
  int64_t image_blocks() const { return (image_.batch + images_ - 1) / images_; }
  int64_t extent(int64_t d, int64_t count) const { return (count - 1) * step_[d] + reach_[d] + 1; }
  void set_strides();
  void copy_planes(RowCopy<T> planes, int64_t channels, CopyRows<T>* copy) const;

  Image<const T> image_;
  Axis axis_[kSpatial];
  int64_t channels_;  // in a block, in units
  bool pairs_;
  bool in_place_;
  int64_t divided_ = kSpatial - 1;
  int64_t band_ = 1;
  int64_t images_ = 1;
  // Of the block: from a pixel to the next, in indices; of its image, between indices; and the taps' reach.
  int64_t step_[kSpatial];
  int64_t source_step_[kSpatial];
  int64_t reach_[kSpatial];
  // In units.
  int64_t width_ = 0;  // of a row's phase
  int64_t pixel_stride_[kSpatial];
  int64_t row_stride_[kSpatial];
  int64_t image_stride_ = 0;
  int64_t channel_stride_ = 0;
};

extern template class ImageBlocks<float>;
extern template class ImageBlocks<Bfloat16>;

}  // namespace opsmith::optimized
