// See column_matmul.h.
#include "column_matmul.h"

#include <algorithm>

#include "../common/tasks.h"
#include "matmul_operands.h"
#include "strided_matmul.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized {
namespace {

// Columns of a task: a few channels, so that they are whole panels.
constexpr int64_t kChannels = kPanel;
constexpr int64_t kMostColumns = 512;
constexpr int64_t kMostPixels = 256, kFewerOfOnePlace = 12;

class Columns {
 public:
  explicit Columns(const ColumnProduct& product)
      : p_(product),
        kernel_size_(product.window.kernel_size()),
        pixels_of_sample_(product.small.pixels()),
        pixels_(product.small.batch * pixels_of_sample_),
        small_channels_(product.small.channels / product.groups),
        large_channels_(product.large.channels / product.groups),
        channels_(kChannels * std::max<int64_t>(1, kMostColumns / kChannels / kernel_size_)),
        parts_(ceil_divided(large_channels_, channels_)) {}

  // Whole panels of the weight are read. The weight of one place is laid in another order in less time.
  bool pays() const {
    const int64_t most = kernel_size_ == 1 ? small_channels_ / kFewerOfOnePlace : small_channels_;
    return large_channels_ * kernel_size_ % kPanel == 0 && pixels_ <= std::min(kMostPixels, most);
  }

  bool run(KernelRuntimeContext& context) const {
    const auto pixels = temporary<float>(context, pixels_ * p_.small.channels);
    if (pixels == nullptr) {
      return false;
    }
    gather_pixels(pixels);
    return run_tasks<float>(context, p_.groups * parts_,
                            row_grain_size(pixels_ * small_channels_ / 16 * channels_ * kernel_size_),
                            pixels_ * channels_ * kernel_size_,
                            [&](int64_t task, float* columns) { multiply(task, pixels, columns); });
  }

 private:
  // [pixel][channel].
  void gather_pixels(float* to) const {
    const FeatureMap<const float>& small = p_.small;
    for_each_pixel(small.size, [&](int64_t pixel, const int64_t (&at)[kSpatial]) {
      const float* const from =
          small.data + at[0] * small.stride[0] + at[1] * small.stride[1] + at[2] * small.stride[2];
      for (int64_t sample = 0; sample < small.batch; ++sample) {
        float* const row = to + (sample * pixels_of_sample_ + pixel) * small.channels;
        for (int64_t channel = 0; channel < small.channels; ++channel) {
          row[channel] = from[sample * small.batch_stride + channel * small.channel_stride];
        }
      }
    });
  }

  void multiply(int64_t task, const float* pixels, float* columns) const {
    const int64_t group = task / parts_, first = task % parts_ * channels_;
    const int64_t channels = std::min(channels_, large_channels_ - first);
    Matmul<float> matmul;
    matmul.a = pixels + group * small_channels_;
    matmul.a_row = p_.small.channels;
    matmul.b = p_.weight + (group * small_channels_ * large_channels_ + first) * kernel_size_;
    matmul.b_depth = large_channels_ * kernel_size_;
    matmul.b_panel = kPanel;
    matmul.c = columns;
    matmul.c_row = matmul.columns = channels * kernel_size_;
    matmul.depth = small_channels_;
    OPSMITH_BEST(matmul_float)(matmul, 0, pixels_, 0, panels_of(matmul.columns));
    for (int64_t sample = 0; sample < p_.large.batch; ++sample) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        const int64_t of_map = group * large_channels_ + first + channel;
        add_up(columns + sample * pixels_of_sample_ * matmul.c_row + channel * kernel_size_, matmul.c_row,
               p_.bias == nullptr ? 0.0f : p_.bias[of_map],
               p_.large.data + sample * p_.large.batch_stride + of_map * p_.large.channel_stride);
      }
    }
  }

  // A plane of the large map from its columns, whose pixels begin `row` elements apart.
  void add_up(const float* columns, int64_t row, float bias, float* plane) const {
    const FeatureMap<float>& large = p_.large;
    for_each_pixel(large.size, [&](int64_t, const int64_t (&at)[kSpatial]) {
      plane[at[0] * large.stride[0] + at[1] * large.stride[1] + at[2] * large.stride[2]] = bias;
    });
    const ConvolutionWindow& window = p_.window;
    for_each_pixel(p_.small.size, [&](int64_t pixel, const int64_t (&at)[kSpatial]) {
      int64_t first[kSpatial], begin[kSpatial], end[kSpatial];
      for (int64_t d = 0; d < kSpatial; ++d) {
        first[d] = at[d] * window.stride[d] - window.padding[d];
        begin[d] = first[d] >= 0 ? 0 : ceil_divided(-first[d], window.dilation[d]);
        end[d] = std::min(window.kernel[d], ceil_divided(large.size[d] - first[d], window.dilation[d]));
      }
      for (int64_t i = begin[0]; i < end[0]; ++i) {
        float* const of_i = plane + (first[0] + i * window.dilation[0]) * large.stride[0];
        for (int64_t j = begin[1]; j < end[1]; ++j) {
          float* const of_j = of_i + (first[1] + j * window.dilation[1]) * large.stride[1];
          const float* const from = columns + pixel * row + (i * window.kernel[1] + j) * window.kernel[2];
          for (int64_t k = begin[2]; k < end[2]; ++k) {
            of_j[(first[2] + k * window.dilation[2]) * large.stride[2]] += from[k];
          }
        }
      }
    });
  }

  // body(its number, its indices) of the pixels of a map of `size`.
  template <class Body>
  static void for_each_pixel(const int64_t (&size)[kSpatial], const Body& body) {
    int64_t number = 0;
    int64_t at[kSpatial];
    for (at[0] = 0; at[0] < size[0]; ++at[0]) {
      for (at[1] = 0; at[1] < size[1]; ++at[1]) {
        for (at[2] = 0; at[2] < size[2]; ++at[2]) {
          body(number++, at);
        }
      }
    }
  }

  const ColumnProduct& p_;
  const int64_t kernel_size_;
  const int64_t pixels_of_sample_;
  const int64_t pixels_;
  const int64_t small_channels_;  // of a group
  const int64_t large_channels_;  // of a group
  const int64_t channels_;        // of a task
  const int64_t parts_;
};

}  // namespace

bool column_matmul_pays(const ColumnProduct& product) {
  return Columns(product).pays();
}

bool multiply_columns(executorch::runtime::KernelRuntimeContext& context, const ColumnProduct& product) {
  return Columns(product).run(context);
}

}  // namespace opsmith::optimized
