#include "feature_map_blocks.h"

#include <algorithm>
#include <type_traits>

#include "threads.h"

namespace opsmith::optimized {
namespace {

// A block's units: a part of the second-level cache.
constexpr int64_t kBlockUnits = 32768;
// Pixels of a tile of the matrix product, fewer than which waste it; and of a block of several samples.
constexpr int64_t kTilePixels = 64;
constexpr int64_t kBlockPixels = 256;
// Pixels of a block that is read in place.
constexpr int64_t kPixelsInPlace = 512;

// Indices i of 0…n for which first + i · step lies within 0…size; step is positive.
struct Inside {
  int64_t begin;
  int64_t end;
};
Inside inside(int64_t first, int64_t step, int64_t n, int64_t size) {
  const int64_t begin = first >= 0 ? 0 : step == 1 ? -first : ceil_divided(-first, step);
  const int64_t end = first >= size ? 0 : step == 1 ? size - first : ceil_divided(size - first, step);
  return {std::min(begin, n), std::clamp(end, std::min(begin, n), n)};
}

}  // namespace

int64_t Pixels::runs(int64_t first, int64_t pixels, int64_t at, Run* runs) const {
  const bool dense = stride[2] == 1;
  int64_t q2 = first % count[2], rest = first / count[2];
  int64_t q1 = rest % count[1];
  rest /= count[1];
  int64_t q0 = rest % count[0];
  int64_t sample = rest / count[0];
  int64_t found = 0;
  while (pixels > 0) {
    const int64_t n = std::min(pixels, count[2] - q2);
    const int64_t from = sample * sample_stride + q0 * stride[0] + q1 * stride[1] + q2 * stride[2];
    if (dense && found > 0 && runs[found - 1].from + runs[found - 1].count == from) {
      runs[found - 1].count += n;
    } else {
      runs[found++] = {at, from, n};
    }
    at += n;
    pixels -= n;
    q2 = 0;
    if (++q1 == count[1]) {
      q1 = 0;
      if (++q0 == count[0]) {
        q0 = 0;
        ++sample;
      }
    }
  }
  return found;
}

template <class T>
FeatureMapBlocks<T>::FeatureMapBlocks(const FeatureMap<const T>& map, const WindowDim (&dims)[kSpatial],
                                      int64_t channels, bool pairs, bool in_place)
    : map_(map),
      channels_(pairs ? ceil_divided(channels, 2) : channels),
      pairs_(pairs),
      in_place_(in_place && std::is_same_v<T, float>) {
  for (int64_t d = 0; d < kSpatial; ++d) {
    const WindowDim& dim = dims_[d] = dims[d];
    // With a kernel of one, the block has the indices that are read and no others.
    const bool is_point = dim.kernel_size <= 1;
    step_[d] = is_point ? 1 : dim.step;
    source_step_[d] = is_point ? dim.step : 1;
    reach_[d] = is_point ? 0 : dim.reach();
    in_place_ = in_place_ && dim.first >= 0 &&
                (dim.count - 1) * dim.step + dim.first + std::max<int64_t>(0, dim.reach()) < map.size[d];
  }
  in_place_ = in_place_ && (dims_[2].count == 1 || dims_[2].step * map.stride[2] == 1);
  divided_ = dims_[0].count > 1 ? 0 : dims_[1].count > 1 ? 1 : 2;
  const int64_t count = dims_[divided_].count;
  int64_t others = 1, area = channels_;
  for (int64_t d = 0; d < kSpatial; ++d) {
    others *= d == divided_ ? 1 : dims_[d].count;
    area *= d == divided_ ? 1 : extent(d, dims_[d].count);
  }
  area = std::max<int64_t>(1, area);
  int64_t fitting = ceil_divided(kPixelsInPlace, others);
  if (!in_place_) {
    fitting = std::max(ceil_divided(kTilePixels, others),
                       (kBlockUnits / area - reach_[divided_] - 1) / step_[divided_] + 1);
  }
  fitting = std::clamp<int64_t>(fitting, 1, count);
  band_ = ceil_divided(count, ceil_divided(count, fitting));
  const int64_t all = others * count;
  if (band_ == count && all < kBlockPixels && all % kTilePixels != 0) {
    const int64_t each = std::max<int64_t>(1, in_place_ ? 1 : area * extent(divided_, count));
    samples_ = std::clamp<int64_t>(4 * kBlockUnits / each, ceil_divided(kTilePixels, all),
                                   ceil_divided(kBlockPixels, all));
    samples_ = std::max<int64_t>(1, std::min(samples_, map.batch));
  }
  set_strides();
}

template <class T>
void FeatureMapBlocks<T>::set_strides() {
  if (in_place_) {
    for (int64_t d = 0; d < kSpatial; ++d) {
      row_stride_[d] = map_.stride[d];
      pixel_stride_[d] = dims_[d].count == 1 ? 0 : dims_[d].step * map_.stride[d];
    }
    pixel_stride_[2] = 1;
    channel_stride_ = map_.channel_stride;
    sample_stride_ = map_.batch_stride;
    return;
  }
  int64_t extents[kSpatial];
  for (int64_t d = 0; d < kSpatial; ++d) {
    extents[d] = extent(d, d == divided_ ? band_ : dims_[d].count);
  }
  // Indices of the last dimension are sorted by their remainders, its phases: so the pixels of a place are
  // neighbours whatever the step is.
  width_ = ceil_divided(extents[2], step_[2]);
  row_stride_[2] = 1;
  row_stride_[1] = width_ * step_[2];
  row_stride_[0] = row_stride_[1] * extents[1];
  pixel_stride_[2] = 1;
  pixel_stride_[1] = row_stride_[1] * step_[1];
  pixel_stride_[0] = row_stride_[0] * step_[0];
  channel_stride_ = row_stride_[0] * extents[0];
  sample_stride_ = channel_stride_ * channels_;
}

template <class T>
void FeatureMapBlocks<T>::divide_as(int64_t band, int64_t samples) {
  band_ = band;
  samples_ = samples;
  set_strides();
}

template <class T>
typename FeatureMapBlocks<T>::Block FeatureMapBlocks<T>::block(int64_t index, int64_t channel) const {
  const int64_t sample = index / bands() * samples_;
  const int64_t begin = index % bands() * band_;
  return {sample, std::min(samples_, map_.batch - sample), channel, begin,
          std::min(dims_[divided_].count, begin + band_)};
}

template <class T>
Pixels FeatureMapBlocks<T>::pixels(const Block& block) const {
  Pixels pixels{{}, sample_stride_, {}};
  for (int64_t d = 0; d < kSpatial; ++d) {
    pixels.count[d] = d == divided_ ? block.end - block.begin : dims_[d].count;
    pixels.stride[d] = pixel_stride_[d];
  }
  return pixels;
}

template <class T>
void FeatureMapBlocks<T>::begin_of(const Block& block, int64_t (&begin)[kSpatial]) const {
  for (int64_t d = 0; d < kSpatial; ++d) {
    begin[d] = d == divided_ ? block.begin : 0;
  }
}

template <class T>
int64_t FeatureMapBlocks<T>::most_pixels() const {
  int64_t pixels = samples_;
  for (int64_t d = 0; d < kSpatial; ++d) {
    pixels *= d == divided_ ? band_ : dims_[d].count;
  }
  return pixels;
}

template <class T>
int64_t FeatureMapBlocks<T>::size() const {
  return in_place_ ? 0 : samples_ * sample_stride_ + kSlack;
}

template <class T>
void FeatureMapBlocks<T>::offsets(int64_t channels, int64_t* to) const {
  const int64_t units = pairs_ ? ceil_divided(channels, 2) : channels;
  const auto along = [this](int64_t d, int64_t place) {
    const WindowDim& dim = dims_[d];
    const int64_t index = (dim.is_reversed ? dim.kernel_size - 1 - place : place) * dim.dilation;
    if (d == 2 && !in_place_) {
      return index % step_[2] * width_ + index / step_[2];
    }
    return index * row_stride_[d];
  };
  for (int64_t c = 0; c < units; ++c) {
    for (int64_t i = 0; i < dims_[0].kernel_size; ++i) {
      for (int64_t j = 0; j < dims_[1].kernel_size; ++j) {
        for (int64_t k = 0; k < dims_[2].kernel_size; ++k) {
          *to++ = c * channel_stride_ + along(0, i) + along(1, j) + along(2, k);
        }
      }
    }
  }
}

// Of units that are pairs, the last may have one channel only.
template <class T>
void FeatureMapBlocks<T>::copy_planes(RowCopy<T> planes, int64_t channels, CopyRows<T>* copy) const {
  planes.planes = pairs_ ? channels / 2 : channels;
  planes.second = pairs_ ? planes.from + map_.channel_stride : nullptr;
  copy(planes);
  if (pairs_ && channels % 2 != 0) {
    planes.from += planes.planes * planes.from_plane;
    planes.to += planes.planes * planes.to_plane;
    planes.planes = 1;
    planes.second = nullptr;
    copy(planes);
  }
}

template <class T>
const float* FeatureMapBlocks<T>::fill(const Block& block, int64_t channels, float* memory,
                                       CopyRows<T>* copy) const {
  const T* const corner = map_.data + block.sample * map_.batch_stride + block.channel * map_.channel_stride;
  int64_t first[kSpatial], extents[kSpatial];
  for (int64_t d = 0; d < kSpatial; ++d) {
    const int64_t begin = d == divided_ ? block.begin : 0;
    first[d] = begin * dims_[d].step + dims_[d].first;
    extents[d] = extent(d, d == divided_ ? block.end - block.begin : dims_[d].count);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (in_place_) {
      return corner + first[0] * map_.stride[0] + first[1] * map_.stride[1] + first[2] * map_.stride[2];
    }
  }
  const int64_t each = pairs_ ? 2 : 1;
  const int64_t phases = step_[2];
  const Inside rows = inside(first[1], source_step_[1], extents[1], map_.size[1]);
  // Stores end behind their rows, in memory that is written later: planes one after the other, or all at once
  // where each is a single slice.
  const int64_t at_once = extents[0] == 1 ? channels : each;
  for (int64_t phase = 0; phase < phases; ++phase) {
    const int64_t begin = first[2] + phase;
    const int64_t step = phases * source_step_[2];
    const int64_t width = phases == 1 ? extents[2] : width_;
    const Inside columns = inside(begin, step, width, map_.size[2]);
    const int64_t in_slice = (first[1] + rows.begin * source_step_[1]) * map_.stride[1] +
                             (begin + columns.begin * step) * map_.stride[2];
    for (int64_t i = 0; i < block.samples; ++i) {
      for (int64_t c = 0; c < channels; c += at_once) {
        for (int64_t x = 0; x < extents[0]; ++x) {
          const int64_t at = first[0] + x * source_step_[0];
          const bool is_empty = at < 0 || at >= map_.size[0] || columns.begin == columns.end;
          const int64_t from = is_empty ? 0 : at * map_.stride[0] + in_slice;
          RowCopy<T> copied;
          copied.from = corner + i * map_.batch_stride + c * map_.channel_stride + from;
          copied.from_plane = each * map_.channel_stride;
          copied.from_row = source_step_[1] * map_.stride[1];
          copied.step = step * map_.stride[2];
          copied.rows = extents[1];
          copied.row_begin = rows.begin;
          copied.row_end = is_empty ? rows.begin : rows.end;
          copied.before = columns.begin;
          copied.count = columns.end - columns.begin;
          copied.width = width;
          copied.to =
              memory + i * sample_stride_ + c / each * channel_stride_ + x * row_stride_[0] + phase * width_;
          copied.to_plane = channel_stride_;
          copied.to_row = row_stride_[1];
          copy_planes(copied, std::min(at_once, channels - c), copy);
        }
      }
    }
  }
  return memory;
}

template class FeatureMapBlocks<float>;
template class FeatureMapBlocks<Bfloat16>;

}  // namespace opsmith::optimized
