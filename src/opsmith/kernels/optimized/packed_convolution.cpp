// Convolutions of channels-last images with weights that were packed ahead, followed by a sum and an
// activation: what a network for inference consists of.
//
// Note [Sources]
// A pixel of the result meets a pixel of the image for each place in the kernel, whose channels lie together.
// Their addresses are written down, of zeros where there is no such pixel, and the product reads the image by
// them: it is neither copied nor padded. A strip of pixels at a time, whose channels stay in the second-level
// cache while all panels of the weight pass by.
#include <algorithm>
#include <optional>
#include <string_view>

#include "../common/channels_innermost.h"
#include "../common/convolution_shape.h"
#include "../common/resize.h"
#include "../common/selection.h"
#include "../common/tasks.h"
#include "../common/temporary.h"
#include "activation.h"
#include "by_dtype.h"
#include "packed_convolution_operands.h"
#include "strided_matmul.h"
#include "threads.h"

namespace opsmith::optimized {
namespace {

using List = executorch::aten::ArrayRef<int64_t>;

// Pixels of a strip: whole tiles of six or eight.
constexpr int64_t kStripPixels = 96;
constexpr int64_t kTilePixels = 24;
// Elements of a strip's sources, and of kPanelsTogether panels, that are read again and again meanwhile.
constexpr int64_t kStripUnits = 98304;
constexpr int64_t kWeightUnits = 65536;
// With fewer strips the threads share the panels of each.
constexpr int64_t kFewTasks = 8;
// Panels that a thread should have at least, so that its tiles are whole.
constexpr int64_t kPanelsTogether = 4;

// Of an image, or of the kernel over it: y, then x.
struct Plane {
  int64_t value[2];
  int64_t operator[](size_t d) const { return value[d]; }
  int64_t size() const { return value[0] * value[1]; }
};

Plane plane_of(List list) {
  return {{entry(list, 0), entry(list, 1)}};
}

struct PackedConvolution {
  const float* image;  // [batch][y][x][channels]
  int64_t batch;
  Plane size;
  int64_t channels;
  Plane kernel;
  Plane stride;
  Plane padding;
  Plane dilation;
  int64_t groups;
  int64_t joined = 1;    // neighbours in a row that are one place of the kernel
  const float* weights;  // [group][panel][place][channel][kPanel]; depthwise, [panel][place][kPanel]
  const float* bias;
  const float* other;
  float* result;
  Plane result_size;
  int64_t result_channels;
  Activation<float> activation;

  bool is_depthwise() const { return groups == channels && groups == result_channels && groups > 1; }
  int64_t pixels() const { return batch * result_size.size(); }
};

class PackedProduct {
 public:
  explicit PackedProduct(const PackedConvolution& convolution)
      : c_(convolution),
        is_depthwise_(convolution.is_depthwise()),
        groups_(is_depthwise_ ? 1 : convolution.groups),
        depth_(is_depthwise_ ? 1 : convolution.joined * convolution.channels / groups_),
        columns_(convolution.result_channels / groups_),
        places_at_once_(
            std::clamp<int64_t>(kWeightUnits / (depth_ * kPanelsTogether * kPanel), 1, c_.kernel.size())),
        strip_(pixels_of_strip()),
        strips_(ceil_divided(convolution.pixels(), strip_)),
        parts_(strips_ * groups_ >= kFewTasks
                   ? 1
                   : std::clamp<int64_t>(panels_of(columns_) / kPanelsTogether, 1, kFewTasks / groups_ + 1)),
        columns_of_part_(ceil_divided(panels_of(columns_), parts_) * kPanel) {}

  bool run(KernelRuntimeContext& context) const {
    const auto zeros = temporary<float>(context, c_.channels);
    if (zeros == nullptr) {
      return false;
    }
    std::fill_n(zeros.get(), c_.channels, 0.0f);
    const int64_t places = c_.kernel.size();
    // Of a depthwise convolution each product has operands of its own.
    const int64_t cost = strip_ * columns_of_part_ / (is_depthwise_ ? 4 : 16) * places * depth_;
    // A source is an address: two units.
    return run_tasks<float>(context, strips_ * parts_, row_grain_size(cost), 2 * places * strip_,
                            [&](int64_t task, float* memory) {
                              multiply(task / parts_ * strip_, task % parts_ * columns_of_part_, zeros,
                                       reinterpret_cast<const float**>(memory));
                            });
  }

 private:
  // As many as stay in the second-level cache, and about as many in each strip.
  int64_t pixels_of_strip() const {
    const int64_t units = places_at_once_ * (is_depthwise_ ? c_.channels : depth_);
    const int64_t most =
        std::clamp(kStripUnits / units / kTilePixels * kTilePixels, kTilePixels, kStripPixels);
    const int64_t strips = ceil_divided(c_.pixels(), most);
    return std::min(most, ceil_divided(ceil_divided(c_.pixels(), strips), kTilePixels) * kTilePixels);
  }

  // Pixels from `first` on, by the panels from `column` on.
  void multiply(int64_t first, int64_t column, const float* zeros, const float** sources) const {
    const int64_t count = std::min(strip_, c_.pixels() - first);
    const int64_t columns = std::min(columns_of_part_, columns_ - column);
    if (columns <= 0) {
      return;
    }
    const int64_t panel_units = c_.kernel.size() * depth_ * kPanel;
    for (int64_t group = 0; group < groups_; ++group) {
      const int64_t channel = group * columns_ + column;
      put_sources(first, count, is_depthwise_ ? column : group * depth_, zeros, sources);
      PackedPixels pixels{};
      pixels.sources = sources;
      pixels.place_step = strip_;
      pixels.pixels = count;
      pixels.places = c_.kernel.size();
      pixels.depth = depth_;
      pixels.at_once = places_at_once_;
      pixels.weights = c_.weights + (group * panels_of(columns_) + column / kPanel) * panel_units;
      pixels.channels = columns;
      pixels.bias = c_.bias == nullptr ? nullptr : c_.bias + channel;
      pixels.pixel_step = c_.result_channels;
      pixels.result = c_.result + first * c_.result_channels + channel;
      pixels.other = c_.other == nullptr ? nullptr : c_.other + first * c_.result_channels + channel;
      pixels.low = c_.activation.low;
      pixels.high = c_.activation.high;
      if (is_depthwise_) {
        OPSMITH_BEST(packed_depthwise)(pixels);
      } else {
        OPSMITH_BEST(packed_convolution)(pixels);
      }
      if (c_.activation.function != nullptr) {
        activate(pixels.result, count, columns);
      }
    }
  }

  void activate(float* result, int64_t pixels, int64_t columns) const {
    if (columns == c_.result_channels) {
      c_.activation.function(result, result, pixels * columns, false);
      return;
    }
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      float* const row = result + pixel * c_.result_channels;
      c_.activation.function(row, row, columns, false);
    }
  }

  // Note [Sources], row after row of the result.
  void put_sources(int64_t first, int64_t count, int64_t channel, const float* zeros,
                   const float** to) const {
    for (int64_t at = 0; at < count;) {
      const int64_t row = (first + at) / c_.result_size[1], x = (first + at) % c_.result_size[1];
      const int64_t run = std::min(c_.result_size[1] - x, count - at);
      const int64_t sample = row / c_.result_size[0], y = row % c_.result_size[0];
      const float* const image = c_.image + sample * c_.size.size() * c_.channels + channel;
      const float** of_place = to + at;
      for (int64_t i = 0; i < c_.kernel[0]; ++i) {
        const int64_t source_y = y * c_.stride[0] - c_.padding[0] + i * c_.dilation[0];
        const bool is_inside = source_y >= 0 && source_y < c_.size[0];
        for (int64_t j = 0; j < c_.kernel[1]; ++j, of_place += strip_) {
          const int64_t source_x = x * c_.stride[1] - c_.padding[1] + j * c_.dilation[1];
          if (!is_inside) {
            std::fill_n(of_place, run, zeros);
          } else {
            put_row(image + source_y * c_.size[1] * c_.channels, source_x, run, zeros, of_place);
          }
        }
      }
      at += run;
    }
  }

  void put_row(const float* row, int64_t x, int64_t count, const float* zeros, const float** to) const {
    const int64_t step = c_.stride[1], width = c_.size[1], units = step * c_.channels;
    const int64_t begin = x >= 0 ? 0 : std::min(count, ceil_divided(-x, step));
    const int64_t end = x >= width ? begin : std::max(begin, std::min(count, (width - 1 - x) / step + 1));
    std::fill_n(to, begin, zeros);
    const float* from = row + (x + begin * step) * c_.channels;
    for (int64_t i = begin; i < end; ++i, from += units) {
      to[i] = from;
    }
    std::fill_n(to + end, count - end, zeros);
  }

  const PackedConvolution& c_;
  const bool is_depthwise_;
  const int64_t groups_;
  const int64_t depth_;    // channels of a place
  const int64_t columns_;  // of a group
  const int64_t places_at_once_;
  const int64_t strip_;  // pixels
  const int64_t strips_;
  const int64_t parts_;  // of a group's panels
  const int64_t columns_of_part_;
};

// An image of any strides, channels-last, in a border of zeros; null where there was no memory.
Temporary<float> lay_channels_last(KernelRuntimeContext& context, const Tensor& image, const Plane& border) {
  const auto map = feature_map_at(static_cast<const float*>(image.const_data_ptr()), image, 2);
  const int64_t before = border[1] * map.channels, pixels = map.size[2] * map.channels;
  const int64_t row_units = pixels + 2 * before, rows = map.size[1] + 2 * border[0];
  const auto laid = temporary<float>(context, Checked(map.batch) * rows * row_units);
  float* const to = laid;
  if (to == nullptr) {
    return laid;
  }
  const auto lay_row = [&](int64_t sample, int64_t y, float* line) {
    if (y < 0 || y >= map.size[1]) {
      std::fill_n(line, row_units, 0.0f);
      return;
    }
    std::fill_n(line, before, 0.0f);
    const float* const from = map.data + sample * map.batch_stride + y * map.stride[1];
    for (int64_t channel = 0; channel < map.channels; ++channel) {
      for (int64_t x = 0; x < map.size[2]; ++x) {
        line[before + x * map.channels + channel] = from[channel * map.channel_stride + x * map.stride[2]];
      }
    }
    std::fill_n(line + before + pixels, before, 0.0f);
  };
  parallel(map.batch * rows, row_grain_size(row_units), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      lay_row(row / rows, row % rows - border[0], to + row * row_units);
    }
  });
  return laid;
}

// Note [Few channels]
// The channels of neighbours in a row lie together, as their weights do. Where there are few, a row of the
// kernel is one place with all of their channels; a copy of the image with zeros around it has each whole.
constexpr int64_t kFewChannels = 8;

bool joins_places(const PackedConvolution& c) {
  return c.groups == 1 && c.kernel[1] > 1 && c.dilation[1] == 1 && c.channels <= kFewChannels;
}

// Of such a copy.
void join_places(PackedConvolution& c) {
  c.size = {{c.size[0] + 2 * c.padding[0], c.size[1] + 2 * c.padding[1]}};
  c.padding = {};
  c.joined = c.kernel[1];
  c.kernel.value[1] = 1;
}

// The shape of the result; rejects what does not go together.
bool packed_convolution_sizes(KernelRuntimeContext& context, const Tensor& input, const Tensor& packed,
                              int64_t out_channels, List kernel_size, List stride, List padding,
                              List dilation, int64_t groups, Dims& sizes) {
  for (const List list : {kernel_size, stride, padding, dilation}) {
    OPSMITH_CHECK(context, list.size() == 1 || list.size() == 2, InvalidArgument, false,
                  "convolution_packed: expected kernel_size, stride, padding and dilation of 1 or 2 numbers, "
                  "but got %zu",
                  list.size());
  }
  OPSMITH_CHECK(context, input.dim() == 4, InvalidArgument, false,
                "convolution_packed: an image is [batch, channels, y, x], not of %d dimensions",
                static_cast<int>(input.dim()));
  OPSMITH_CHECK(context,
                groups > 0 && out_channels > 0 && out_channels % groups == 0 && input.sizes()[1] > 0 &&
                    input.sizes()[1] % groups == 0,
                InvalidArgument, false,
                "convolution_packed: %d and %" PRId64 " channels are not divided into %" PRId64 " groups",
                static_cast<int>(input.sizes()[1]), out_channels, groups);
  sizes = {input.sizes()[0], out_channels};
  Checked bytes = Checked(input.sizes()[1]) * static_cast<int64_t>(sizeof(float));  // of a padded image
  for (int64_t d = 0; d < 2; ++d) {
    const SlidingWindow window{entry(kernel_size, d), entry(stride, d), entry(padding, d),
                               entry(dilation, d)};
    OPSMITH_CHECK(context, window.is_valid() && window.is_taken(), InvalidArgument, false,
                  "convolution_packed: non-positive kernel, stride or dilation, negative padding, or one "
                  "beyond %" PRId64 ", is not supported",
                  SlidingWindow::kMost);
    const int64_t size = input.sizes()[2 + d];
    const int64_t places = window.places(size).value();
    OPSMITH_CHECK(context, places >= 1, InvalidArgument, false,
                  "convolution_packed: the kernel reaches over %" PRId64
                  " pixels, and the padded image has %" PRId64,
                  window.reach().value(), window.padded(size).value());
    bytes = bytes * window.padded(size);
    OPSMITH_CHECK(context, bytes.fits(), InvalidArgument, false,
                  "convolution_packed: a padded image goes beyond 64 bits");
    sizes.push_back(places);
  }
  const bool is_depthwise = groups > 1 && groups == input.sizes()[1] && groups == out_channels;
  const int64_t panels = is_depthwise ? panels_of(groups) : groups * panels_of(out_channels / groups);
  const int64_t places = entry(kernel_size, 0) * entry(kernel_size, 1);
  const Checked depth = Checked(places) * (is_depthwise ? 1 : input.sizes()[1] / groups);
  OPSMITH_CHECK(
      context,
      packed.dim() == 3 && packed.sizes()[0] == panels && depth == packed.sizes()[1] &&
          packed.sizes()[2] == kPanel,
      InvalidArgument, false,
      "convolution_packed: the weight was packed for other channels, another kernel or other groups");
  return true;
}

}  // namespace

namespace native {

Tensor& convolution_packed_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& packed,
                               const std::optional<Tensor>& bias, const std::optional<Tensor>& other,
                               int64_t out_channels, List kernel_size, List stride, List padding,
                               List dilation, int64_t groups, std::string_view activation, Tensor& out) {
  Dims sizes;
  if (!packed_convolution_sizes(context, input, packed, out_channels, kernel_size, stride, padding, dilation,
                                groups, sizes)) {
    return out;
  }
  const auto is_float = [](const Tensor& each) { return each.scalar_type() == ScalarType::Float; };
  OPSMITH_CHECK(context,
                is_float(input) && is_float(packed) && is_float(out) &&
                    (!bias.has_value() || is_float(*bias)) && (!other.has_value() || is_float(*other)),
                NotSupported, out, "convolution_packed takes float32");
  OPSMITH_CHECK(context, !bias.has_value() || (bias->dim() == 1 && bias->numel() == out_channels),
                InvalidArgument, out,
                "convolution_packed: a bias has a value for each of %" PRId64 " channels", out_channels);
  const auto found = activation_named<float>(activation);
  OPSMITH_CHECK(context, found.has_value(), InvalidArgument, out,
                "convolution_packed: activation is one of %s", kActivations);
  if (!resize(context, out, sizes)) {
    return out;
  }
  OPSMITH_CHECK(
      context,
      has_channels_innermost(out) &&
          (!other.has_value() ||
           (other->dim() == 4 && other->sizes() == out.sizes() && has_channels_innermost(*other))),
      InvalidArgument, out,
      "convolution_packed: the result, and what is added, have to be channels-last and of one shape");
  if (!are_contiguous(context, {&packed})) {
    return out;
  }
  if (bias.has_value() && !are_contiguous(context, {&*bias})) {
    return out;
  }
  if constexpr (::opsmith::selected("optimized::convolution_packed.out", ScalarType::Float)) {
    PackedConvolution convolution{};
    convolution.batch = input.sizes()[0];
    convolution.size = {{input.sizes()[2], input.sizes()[3]}};
    convolution.channels = input.sizes()[1];
    convolution.kernel = plane_of(kernel_size);
    convolution.stride = plane_of(stride);
    convolution.padding = plane_of(padding);
    convolution.dilation = plane_of(dilation);
    convolution.groups = groups;
    convolution.weights = static_cast<const float*>(packed.const_data_ptr());
    convolution.bias = bias.has_value() ? static_cast<const float*>(bias->const_data_ptr()) : nullptr;
    convolution.other = other.has_value() ? static_cast<const float*>(other->const_data_ptr()) : nullptr;
    convolution.result = static_cast<float*>(out.mutable_data_ptr());
    convolution.result_size = {{sizes[2], sizes[3]}};
    convolution.result_channels = out_channels;
    convolution.activation = *found;
    if (convolution.pixels() == 0) {
      return out;
    }
    const bool joins = joins_places(convolution);
    const bool is_laid = has_channels_innermost(input) && !joins;
    const Plane border = joins ? convolution.padding : Plane{};
    const auto laid = is_laid ? Temporary<float>() : lay_channels_last(context, input, border);
    if (!is_laid && laid == nullptr) {
      return out;
    }
    convolution.image = is_laid ? static_cast<const float*>(input.const_data_ptr()) : laid.get();
    if (joins) {
      join_places(convolution);
    }
    PackedProduct(convolution).run(context);
  }
  return out;
}

}  // namespace native
}  // namespace opsmith::optimized
