// See winograd.h.
//
// Note [Strips]
// The tiles are taken in strips of whole rows, of one sample or several, as many as the second-level cache
// holds with their transforms: [point][channel][tile] of the source and [point][row][tile] of the result,
// where a channel's tiles have room for a vector more.
#include "winograd.h"

#include <algorithm>
#include <atomic>

#include "../common/tasks.h"
#include "matmul_operands.h"
#include "strided_matmul.h"
#include "threads.h"
#include "float_functions.h"

namespace opsmith::optimized {
namespace {

// Fewer channels on either side do not pay for the transforms.
constexpr int64_t kFewestChannels = 16;
// Of a strip: transformed elements, and tiles that its products are for.
constexpr int64_t kStripUnits = 163840;
constexpr int64_t kFewestTiles = 64;
constexpr int64_t kMostTiles = 128;
// Transformed weights that a strip finds in the second-level cache, and those that it does not at all.
constexpr double kWeightsInCache = 2 << 20;
constexpr double kMostWeights = 8 << 20;
// With fewer strips the threads share each.
constexpr int64_t kFewStrips = 8;
// Behind the rows of a source, which are read as whole vectors.
constexpr int64_t kRowSlack = 3 * kPanel;
// From a plane of a transform to the next there is a cache line more, so that they do not meet in the cache.
constexpr int64_t kPlaneSlack = 16;

int64_t rounded_up(int64_t n, int64_t multiple) {
  return ceil_divided(n, multiple) * multiple;
}

// Rows of tiles that follow one another through the samples.
struct Strip {
  int64_t begin;
  int64_t end;
};

class Winograd {
 public:
  explicit Winograd(const WinogradProduct& product) : p_(product) {}

  // In products of a vector for each pair of channels: those of the points, and what the transforms cost
  // beside them, as measured; against those of the places, with what it costs to gather them.
  bool pays() const {
    const double pairs = static_cast<double>(channels_ * rows_);
    const double weights = pairs * kPoints * sizeof(float);
    if (channels_ < kFewestChannels || rows_ < kFewestChannels || weights > kMostWeights) {
      return false;
    }
    // Transforms go by vectors along a row.
    const double tiles = static_cast<double>(tile_rows_ * rounded_up(tiles_of_row_, kPanel));
    const double filled = static_cast<double>(strips() * rounded_up(rows_of_strip_ * tiles_of_row_, kPanel));
    const double pixels = static_cast<double>(p_.result.batch * p_.result.size[1] * p_.result.size[2]);
    const double of_weights = weights <= kWeightsInCache ? 30 : 80;
    const double of_tiles = 2 * tiles * static_cast<double>(channels_ + rows_) / pairs;
    return filled + of_weights + of_tiles < 0.4 * pixels;
  }

  WinogradEnd run(KernelRuntimeContext& context) {
    const auto weights = temporary<float>(context, kPoints * weight_plane_);
    if (weights == nullptr) {
      return WinogradEnd::kNoMemory;
    }
    weights_ = weights;
    parallel(ceil_divided(rows_, kChannelsTogether), row_grain_size(16 * kChannelsTogether * channels_),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin * kChannelsTogether; row < std::min(rows_, end * kChannelsTogether);
                    row += kChannelsTogether) {
                 transform_weights(row, std::min(rows_, row + kChannelsTogether), weights);
               }
             });
    return (strips() < kFewStrips ? multiply_together(context) : multiply_apart(context))
               ? ended()
               : WinogradEnd::kNoMemory;
  }

 private:
  // As many as fit, with few tiles of the last panel unused.
  int64_t best_rows_of_strip() const {
    const int64_t fitting = kStripUnits / (kPoints * (channels_ + rows_));
    const int64_t most = std::clamp(fitting, kFewestTiles, kMostTiles) / tiles_of_row_;
    int64_t best = 1;
    const auto unused = [&](int64_t count) {
      const int64_t strips = ceil_divided(tile_rows_, count);
      return strips * rounded_up(count * tiles_of_row_, kPanel);
    };
    for (int64_t count = 2; count <= std::min(most, tile_rows_); ++count) {
      if (unused(count) <= unused(best)) {
        best = count;
      }
    }
    return best;
  }

  int64_t strips() const { return ceil_divided(tile_rows_, rows_of_strip_); }
  Strip strip(int64_t index) const {
    return {index * rows_of_strip_, std::min(tile_rows_, (index + 1) * rows_of_strip_)};
  }
  WinogradEnd ended() const { return is_finite_ ? WinogradEnd::kDone : WinogradEnd::kNotFinite; }
  // The rows of a channel's source that the tiles of a strip are from, of one sample at a time.
  int64_t rows_units() const { return (kTileSide * rows_of_strip_ + 2) * width_ + kRowSlack; }
  int64_t planes_units() const { return kPoints * (source_plane_ + result_plane_); }

  void transform_weights(int64_t begin, int64_t end, float* to) const {
    float places[kChannelsTogether][kPlaces][kChannelsTogether] = {};
    for (int64_t channel = 0; channel < channels_; channel += kChannelsTogether) {
      const int64_t count = std::min(kChannelsTogether, channels_ - channel);
      for (int64_t c = 0; c < count; ++c) {
        for (int64_t row = begin; row < end; ++row) {
          const float* const from = p_.weight + row * p_.row_stride + (channel + c) * p_.channel_stride;
          for (int64_t place = 0; place < kPlaces; ++place) {
            places[row - begin][place][c] =
                from[place / 3 * p_.place_stride[0] + place % 3 * p_.place_stride[1]];
          }
        }
      }
      for (int64_t row = begin; row < end; ++row) {
        OPSMITH_BEST(winograd_weights)
        (&places[row - begin][0][0], to + row * weight_row_ + channel, weight_plane_);
      }
    }
  }

  bool multiply_apart(KernelRuntimeContext& context) {
    return run_tasks<float>(context, strips(), row_grain_size(rows_ * channels_ * pitch_),
                            planes_units() + rows_units(), [&](int64_t index, float* planes) {
                              for (int64_t channel = 0; channel < channels_; ++channel) {
                                transform_source(strip(index), channel, planes, planes + planes_units());
                              }
                              for (int64_t point = 0; point < kPoints; ++point) {
                                multiply_point(strip(index), point, planes);
                              }
                              transform_result(strip(index), 0, rows_, planes);
                            });
  }

  // All threads at a strip.
  bool multiply_together(KernelRuntimeContext& context) {
    const Tasks<float> transforming(context, channels_, row_grain_size(8 * pitch_), rows_units());
    const auto planes = temporary<float>(context, planes_units());
    if (!transforming.has_memory() || planes == nullptr) {
      return false;
    }
    for (int64_t index = 0; index < strips(); ++index) {
      const Strip own = strip(index);
      transforming.run(
          [&](int64_t channel, float* memory) { transform_source(own, channel, planes, memory); });
      parallel(kPoints, row_grain_size(rows_ * channels_ * pitch_ / 16), [&](int64_t begin, int64_t end) {
        for (int64_t point = begin; point < end; ++point) {
          multiply_point(own, point, planes);
        }
      });
      parallel(rows_, row_grain_size(8 * pitch_),
               [&](int64_t begin, int64_t end) { transform_result(own, begin, end, planes); });
    }
    return true;
  }

  // body(sample, the first row of tiles in it, how many, the first tile in the strip).
  template <class Body>
  void for_each_sample(const Strip& strip, const Body& body) const {
    for (int64_t row = strip.begin; row < strip.end;) {
      const int64_t first = row % rows_of_sample_;
      const int64_t count = std::min(strip.end - row, rows_of_sample_ - first);
      body(row / rows_of_sample_, first, count, (row - strip.begin) * tiles_of_row_);
      row += count;
    }
  }

  // `rows` is memory for the source's rows with zeros around them.
  void transform_source(const Strip& strip, int64_t channel, float* planes, float* rows) const {
    const FeatureMap<const float>& source = p_.source;
    for_each_sample(strip, [&](int64_t sample, int64_t first, int64_t count, int64_t tile) {
      const int64_t top = first * kTileSide + p_.first[0], left = std::max<int64_t>(0, p_.first[1]);
      RowCopy<float> copy;
      copy.rows = kTileSide * count + 2;
      copy.row_begin = std::clamp<int64_t>(-top, 0, copy.rows);
      copy.row_end = std::clamp(source.size[1] - top, copy.row_begin, copy.rows);
      copy.width = width_;
      copy.before = std::min(std::max<int64_t>(0, -p_.first[1]), width_);
      copy.count = std::clamp<int64_t>(source.size[2] - left, 0, width_ - copy.before);
      copy.planes = 1;
      copy.from = source.data + sample * source.batch_stride + channel * source.channel_stride +
                  (top + copy.row_begin) * source.stride[1] + left * source.stride[2];
      copy.second = nullptr;
      copy.from_plane = copy.to_plane = 0;
      copy.from_row = source.stride[1];
      copy.step = source.stride[2];
      copy.to = rows;
      copy.to_row = width_;
      OPSMITH_BEST(copy_rows_float)(copy);
      for (int64_t row = 0; row < count; ++row) {
        WinogradSource tiles;
        tiles.from = rows + row * kTileSide * width_;
        tiles.from_row = width_;
        tiles.tiles = tiles_of_row_;
        tiles.to = planes + channel * pitch_ + tile + row * tiles_of_row_;
        tiles.to_plane = source_plane_;
        OPSMITH_BEST(winograd_source)(tiles);
      }
    });
  }

  void multiply_point(const Strip& strip, int64_t point, float* planes) const {
    Matmul<float> matmul;
    matmul.a = weights_ + point * weight_plane_;
    matmul.a_row = weight_row_;
    matmul.b = planes + point * source_plane_;
    matmul.b_depth = pitch_;
    matmul.b_panel = kPanel;
    matmul.c = planes + kPoints * source_plane_ + point * result_plane_;
    matmul.c_row = pitch_;
    matmul.columns = (strip.end - strip.begin) * tiles_of_row_;
    matmul.depth = channels_;
    OPSMITH_BEST(matmul_float)(matmul, 0, rows_, 0, panels_of(matmul.columns));
  }

  void transform_result(const Strip& strip, int64_t begin, int64_t end, const float* planes) {
    const FeatureMap<float>& result = p_.result;
    const float* const sums = planes + kPoints * source_plane_;
    bool is_finite = true;
    for (int64_t channel = begin; channel < end; ++channel) {
      for_each_sample(strip, [&](int64_t sample, int64_t first, int64_t count, int64_t tile) {
        for (int64_t row = 0; row < count; ++row) {
          const int64_t y = (first + row) * kTileSide;
          WinogradResult tiles;
          tiles.from = sums + channel * pitch_ + tile + row * tiles_of_row_;
          tiles.from_plane = result_plane_;
          tiles.tiles = tiles_of_row_;
          tiles.bias = p_.bias == nullptr ? 0.0f : p_.bias[channel];
          tiles.to = result.data + sample * result.batch_stride + channel * result.channel_stride +
                     y * result.stride[1];
          tiles.to_row = result.stride[1];
          tiles.rows = std::min(kTileSide, result.size[1] - y);
          tiles.columns = result.size[2];
          is_finite = OPSMITH_BEST(winograd_result)(tiles) && is_finite;
        }
      });
    }
    if (!is_finite) {
      is_finite_ = false;
    }
  }

  const WinogradProduct& p_;
  const int64_t channels_ = p_.source.channels;
  const int64_t rows_ = p_.result.channels;
  const int64_t tiles_of_row_ = ceil_divided(p_.result.size[2], kTileSide);
  const int64_t rows_of_sample_ = ceil_divided(p_.result.size[1], kTileSide);
  const int64_t tile_rows_ = p_.result.batch * rows_of_sample_;
  const int64_t rows_of_strip_ = best_rows_of_strip();
  const int64_t pitch_ = rounded_up(rows_of_strip_ * tiles_of_row_, kPanel) + kPanel;
  const int64_t width_ = tiles_of_row_ * kTileSide + 2;
  const int64_t weight_row_ = rounded_up(channels_, kChannelsTogether);
  const int64_t weight_plane_ = rows_ * weight_row_ + kPlaneSlack;
  const int64_t source_plane_ = channels_ * pitch_ + kPlaneSlack;
  const int64_t result_plane_ = rows_ * pitch_ + kPlaneSlack;
  const float* weights_ = nullptr;
  std::atomic<bool> is_finite_ = true;
};

}  // namespace

bool winograd_pays(const WinogradProduct& product) {
  return Winograd(product).pays();
}

WinogradEnd multiply_by_winograd(executorch::runtime::KernelRuntimeContext& context,
                                 const WinogradProduct& product) {
  return Winograd(product).run(context);
}

}  // namespace opsmith::optimized
