// convolution in one to three dimensions, with groups, dilation and transposition, and its gradients. See
// Note [Large and small] in convolution_shape.h.
//
// Note [Phases]
// A large feature map from the small one is sorted by the remainders of its indices by the stride, its
// phases: the pixels of each meet the same places of the kernel, and so it is a convolution of stride 1 with
// these.
#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <type_traits>

#include "../common/resize.h"
#include "../common/tasks.h"
#include "../common/temporary.h"
#include "../common/convolution_shape.h"
#include "../common/nonfinite_weight.h"
#include "by_dtype.h"
#include "column_matmul.h"
#include "elements.h"
#include "feature_map_blocks.h"
#include "float_functions.h"
#include "strided_matmul.h"
#include "threads.h"
#include "winograd.h"

namespace opsmith::optimized {
namespace {

// The pixels of a tile of products, in panels.
constexpr int64_t kTilePixels = 4 * kPanel;
// Up to so much depth of float32, so many units of patches and so many rows of the weight are multiplied at
// once, so that they stay in the caches.
constexpr int64_t kDepth = 768;
constexpr int64_t kStripUnits = 98304;
constexpr int64_t kRows = 96;
// Pixels of a strip, or of a step of the weight's gradient.
constexpr int64_t kMostPixels = 256;
// Units of patches that all threads gather before they multiply.
constexpr int64_t kUnitsTogether = int64_t{1} << 22;
// As many pieces of the work as all threads should have.
constexpr int64_t kFewTasks = 8;
// A group with up to so many channels on either side is summed up place by place of the kernel, rather than
// as a product.
constexpr int64_t kFewRows = 2;
// A sample's pixels, from which on its gradient of a weight of one pixel is added by itself, and from which
// on that is faster than where the weight is larger than the maps, too.
constexpr int64_t kFewPixels = 48;
constexpr int64_t kManyPixels = 128;
// Of the weight's gradient: rows of the patches, and bytes of them, that are multiplied at once.
constexpr int64_t kGradientRows = 1152;
constexpr int64_t kGradientBytes = 262144;

// A weight by group, channel of the small map, channel of the large one, and place in the kernel.
template <class T>
struct Weight {
  T* data;
  int64_t small_stride;
  int64_t large_stride;
  int64_t stride[kSpatial];
};

template <class T>
struct Convolution {
  KernelRuntimeContext& context;
  ConvolutionWindow window;
  int64_t groups;
  Weight<T> weight;
};

// The pixels of a small map, each of which meets the whole kernel.
WindowDim dim_of_small(const ConvolutionWindow& window, int64_t d, int64_t size) {
  WindowDim dim;
  dim.count = size;
  dim.step = window.stride[d];
  dim.first = -window.padding[d];
  dim.kernel_size = window.kernel[d];
  dim.dilation = window.dilation[d];
  return dim;
}

// The pixels of a large map from `phase` on, as many as have its remainder: see Note [Phases].
WindowDim dim_of_large(const ConvolutionWindow& window, int64_t d, int64_t size, int64_t phase) {
  const int64_t stride = window.stride[d], from = phase + window.padding[d];
  WindowDim dim;
  dim.count = size > phase ? ceil_divided(size - phase, stride) : 0;
  dim.result_first = phase;
  dim.result_step = stride;
  int64_t place = 0, step = 1;
  while (place < window.kernel[d] && (from - place * window.dilation[d]) % stride != 0) {
    ++place;
  }
  if (place == window.kernel[d]) {
    return dim;
  }
  while (step * window.dilation[d] % stride != 0) {
    ++step;
  }
  // The last place meets the first pixel.
  dim.kernel_size = (window.kernel[d] - 1 - place) / step + 1;
  dim.kernel_first = place;
  dim.kernel_step = step;
  dim.is_reversed = true;
  dim.first = (from - (place + (dim.kernel_size - 1) * step) * window.dilation[d]) / stride;
  dim.dilation = step * window.dilation[d] / stride;
  return dim;
}

// The result's pixels that the dimensions describe.
template <class T>
FeatureMap<T> phase_of(FeatureMap<T> map, const WindowDim (&dims)[kSpatial]) {
  for (int64_t d = 0; d < kSpatial; ++d) {
    map.data += dims[d].result_first * map.stride[d];
    map.stride[d] *= dims[d].result_step;
    map.size[d] = dims[d].count;
  }
  return map;
}

// Whether the large map's channels lie one after the other, and so the places in the kernel.
template <class T>
bool is_dense(const Weight<T>& weight, const ConvolutionWindow& window) {
  int64_t expected = 1;
  for (int64_t d = kSpatial - 1; d >= 0; --d) {
    if (window.kernel[d] != 1 && weight.stride[d] != expected) {
      return false;
    }
    expected *= window.kernel[d];
  }
  return weight.large_stride == expected;
}

template <class T>
int64_t weight_offset(const Weight<T>& weight, const WindowDim (&dims)[kSpatial],
                      const int64_t (&place)[kSpatial]) {
  int64_t offset = 0;
  for (int64_t d = 0; d < kSpatial; ++d) {
    offset += (dims[d].kernel_first + place[d] * dims[d].kernel_step) * weight.stride[d];
  }
  return offset;
}

// body(number, offset in the weight) of all places in the kernel.
template <class T, class Body>
void for_each_place(const Weight<T>& weight, const WindowDim (&dims)[kSpatial], const Body& body) {
  int64_t number = 0;
  int64_t place[kSpatial];
  for (place[0] = 0; place[0] < dims[0].kernel_size; ++place[0]) {
    for (place[1] = 0; place[1] < dims[1].kernel_size; ++place[1]) {
      for (place[2] = 0; place[2] < dims[2].kernel_size; ++place[2]) {
        body(number++, weight_offset(weight, dims, place));
      }
    }
  }
}

// simd's functions of a dtype.
template <class T>
struct ConvolutionFunctions {
  ProductFunctions<T> product;
  ProductFunctions<float> float_product;
  CopyRows<T>* copy_units;   // as the product takes them: pairs of bfloat16
  CopyRows<T>* copy_floats;  // widened
  void (*add_depthwise)(const Depthwise<T>& kernel_size);
  void (*sum_each)(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals);
  void (*sum_rows)(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals);
};

template <class T>
T one_of() {
  if constexpr (std::is_same_v<T, float>) {
    return 1.0f;
  } else {
    return {0x3f80};
  }
}

// One of the two maps from the other, for pixels that the dimensions describe.
template <class T>
struct MapProduct {
  const Convolution<const T>& convolution;
  FeatureMap<const T> source;
  FeatureMap<T> result;
  bool from_small;
  const T* bias;
  const ConvolutionFunctions<T>& with;

  int64_t rows() const { return result.channels / convolution.groups; }
  int64_t source_channels() const { return source.channels / convolution.groups; }
  int64_t row_stride() const {
    return from_small ? convolution.weight.large_stride : convolution.weight.small_stride;
  }
  int64_t channel_stride() const {
    return from_small ? convolution.weight.small_stride : convolution.weight.large_stride;
  }
  // Groups divide the channels of the small map.
  const T* weight(int64_t group) const {
    const int64_t small = (from_small ? source.channels : result.channels) / convolution.groups;
    return convolution.weight.data + group * small * convolution.weight.small_stride;
  }
};

// ---- a few channels: sums over the kernel of one

// The weights of all channels, channel after channel.
template <class T>
void widen_weights(const MapProduct<T>& p, const WindowDim (&dims)[kSpatial], int64_t kernel_size,
                   float* weights) {
  const int64_t rows = p.rows();
  for (int64_t channel = 0; channel < p.result.channels; ++channel) {
    const T* const own = p.weight(channel / rows) + channel % rows * p.row_stride();
    for_each_place(p.convolution.weight, dims, [&](int64_t number, int64_t offset) {
      weights[channel * kernel_size + number] = widened(own[offset]);
    });
  }
}

template <class T>
bool add_depthwise(const MapProduct<T>& p, const WindowDim (&dims)[kSpatial]) {
  KernelRuntimeContext& context = p.convolution.context;
  const int64_t rows = p.rows(), groups = p.convolution.groups;
  const int64_t kernel_size = dims[0].kernel_size * dims[1].kernel_size * dims[2].kernel_size;
  const FeatureMap<T> to = phase_of(p.result, dims);
  const FeatureMapBlocks<T> blocks(p.source, dims, 1, false, true);
  const auto offsets = temporary<int64_t>(context, kernel_size);
  const auto weights = temporary<float>(context, p.result.channels * kernel_size);
  if (offsets == nullptr || weights == nullptr) {
    return false;
  }
  blocks.offsets(1, offsets);
  widen_weights(p, dims, kernel_size, weights);
  const bool is_dense = to.stride[2] == 1 || to.size[2] == 1;
  const int64_t row_units = is_dense ? 0 : blocks.most_pixels() + kSlack;
  const int64_t cost = rows * to.pixels() * (kernel_size + 4) / 8;
  // One plane of a block's pixels; `lines` is memory for it where the result is not dense.
  const auto add_plane = [&](const Pixels& from, const float* filled, int64_t channel, T* at, T* lines) {
    Depthwise<T> sums;
    sums.block = filled;
    sums.block_row = from.stride[1];
    sums.offsets = offsets;
    sums.weights = weights + channel * kernel_size;
    sums.kernel_size = kernel_size;
    sums.bias = p.bias == nullptr ? 0.0f : widened(p.bias[channel]);
    sums.result = is_dense ? at : lines;
    sums.result_row = is_dense ? to.stride[1] : from.count[2];
    sums.rows = from.count[1];
    sums.columns = from.count[2];
    p.with.add_depthwise(sums);
    for (int64_t y = 0; !is_dense && y < from.count[1]; ++y) {
      for (int64_t z = 0; z < from.count[2]; ++z) {
        at[y * to.stride[1] + z * to.stride[2]] = lines[y * from.count[2] + z];
      }
    }
  };
  const auto add_block = [&](int64_t task, float* memory) {
    const int64_t group = task % groups;
    const auto block = blocks.block(task / groups, group);
    const Pixels from = blocks.pixels(block);
    const float* const filled = blocks.fill(block, 1, memory, p.with.copy_floats);
    T* const lines = reinterpret_cast<T*>(memory + blocks.size());
    int64_t begin[kSpatial] = {};
    blocks.begin_of(block, begin);
    for (int64_t sample = 0; sample < block.samples; ++sample) {
      for (int64_t channel = group * rows; channel < (group + 1) * rows; ++channel) {
        for (int64_t x = 0; x < from.count[0]; ++x) {
          T* const at = to.data + (block.sample + sample) * to.batch_stride + channel * to.channel_stride +
                        (begin[0] + x) * to.stride[0] + begin[1] * to.stride[1] + begin[2] * to.stride[2];
          add_plane(from, filled + sample * from.sample_stride + x * from.stride[0], channel, at, lines);
        }
      }
    }
  };
  return run_tasks<float>(context, blocks.blocks() * groups, row_grain_size(cost), blocks.size() + row_units,
                          add_block);
}

// ---- products

// The weight as [groups][rows][depth]: channels and places in the kernel, of bfloat16 pairs of channels for
// each place, and one more unit for the bias. Some rows at a time, whose weights of a channel lie together
// where the rows are the large map's channels.
template <class T>
bool pack_weight(const MapProduct<T>& p, const WindowDim (&dims)[kSpatial], int64_t units, bool has_more,
                 T* packed) {
  constexpr int64_t kUnit = sizeof(float) / sizeof(T), kTogether = 16, kAhead = 4;
  const int64_t rows = p.rows(), channels = p.source_channels();
  const int64_t kernel_size = dims[0].kernel_size * dims[1].kernel_size * dims[2].kernel_size;
  const auto places = temporary<int64_t>(p.convolution.context, kernel_size);
  if (places == nullptr) {
    return false;
  }
  for_each_place(p.convolution.weight, dims,
                 [&](int64_t number, int64_t offset) { places[number] = offset; });
  // A few places are faster copied one by one.
  bool is_kernel_dense = kernel_size >= 4;
  for (int64_t number = 0; number < kernel_size; ++number) {
    is_kernel_dense = is_kernel_dense && places[number] == number;
  }
  const auto pack_rows = [&](int64_t begin, int64_t end) {
    const T* from[kTogether];
    T* to[kTogether];
    for (int64_t row = begin; row < end; ++row) {
      from[row - begin] = p.weight(row / rows) + row % rows * p.row_stride();
      to[row - begin] = packed + row * units * kUnit;
    }
    int64_t c = 0;
    // One place: a square at a time, so that a row's line is written at once.
    if (kernel_size == 1 && end - begin == kTogether && from[kTogether - 1] == from[0] + kTogether - 1) {
      for (; c + kTogether <= channels; c += kTogether) {
        T square[kTogether][kTogether];
        const T* const lines = from[0] + c * p.channel_stride() + places[0];
        if constexpr (std::is_same_v<T, float>) {
          p.with.product.pack(lines, 1, p.channel_stride(), kTogether, kTogether, square[0]);
        } else {
          for (int64_t k = 0; k < kTogether; ++k) {
            for (int64_t i = 0; i < kTogether; ++i) {
              square[i][k] = lines[k * p.channel_stride() + i];
            }
          }
        }
        for (int64_t i = 0; i < kTogether; ++i) {
          std::copy_n(square[i], kTogether, to[i] + c);
        }
      }
    }
    for (; c < channels; ++c) {
      const int64_t first = c / kUnit * kernel_size * kUnit + c % kUnit, source = c * p.channel_stride();
      for (int64_t i = 0; i < end - begin; ++i) {
        // The processor does not foresee the step to the next channel.
        __builtin_prefetch(from[i] + source + kAhead * p.channel_stride());
        if constexpr (kUnit == 1) {
          if (is_kernel_dense) {
            OPSMITH_BEST(copy_float)(from[i] + source, to[i] + first, kernel_size);
            continue;
          }
        }
        for (int64_t number = 0; number < kernel_size; ++number) {
          to[i][first + number * kUnit] = from[i][source + places[number]];
        }
      }
    }
    for (int64_t i = 0; channels % kUnit != 0 && i < end - begin; ++i) {
      for (int64_t number = 0; number < kernel_size; ++number) {
        to[i][(channels / kUnit * kernel_size + number) * kUnit + 1] = T{};
      }
    }
    for (int64_t row = begin; has_more && row < end; ++row) {
      T* const more = packed + (row * units + units - 1) * kUnit;
      std::fill_n(more, kUnit, T{});
      if (p.bias != nullptr) {
        *more = p.bias[row];
      }
    }
  };
  parallel(ceil_divided(p.result.channels, kTogether), row_grain_size(4 * kTogether * units),
           [&](int64_t begin, int64_t end) {
             for (int64_t row = begin * kTogether; row < std::min(p.result.channels, end * kTogether);
                  row += kTogether) {
               pack_rows(row, std::min(p.result.channels, row + kTogether));
             }
           });
  return true;
}

// Whether the weight is there already as pack_weight would lay it.
template <class T>
bool is_packed(const MapProduct<T>& p) {
  const Convolution<const T>& own = p.convolution;
  return std::is_same_v<T, float> && !p.from_small && is_dense(own.weight, own.window) &&
         own.weight.small_stride == p.source_channels() * own.window.kernel_size();
}

// Strips of pixels of a block times the weight. A strip's patches are packed as panels: some depth at a time,
// by the thread that has the block; or, where there are fewer blocks than threads, all of it and by all of
// them, before each multiplies some rows.
template <class T>
class PatchProduct {
 public:
  PatchProduct(const MapProduct<T>& product, const WindowDim (&dims)[kSpatial])
      : p_(product),
        dims_(dims),
        result_(phase_of(product.result, dims)),
        kernel_size_(dims[0].kernel_size * dims[1].kernel_size * dims[2].kernel_size),
        blocks_(product.source, dims, product.source_channels(), kUnit == 2, true),
        gathered_(ceil_divided(product.source_channels(), kUnit) * kernel_size_),
        // Of bfloat16 the bias is the weight of one more unit, which is 1 in all patches.
        units_(gathered_ + (kUnit == 2 && product.bias != nullptr ? 1 : 0)),
        chunk_(kUnit == 2 ? units_ : ceil_divided(units_, ceil_divided(units_, kDepth))),
        strip_(
            std::min(std::clamp(kStripUnits / chunk_ / kTilePixels * kTilePixels, kTilePixels, kMostPixels),
                     ceil_divided(blocks_.most_pixels(), kPanel) * kPanel)) {}

  bool run() {
    KernelRuntimeContext& context = p_.convolution.context;
    const int64_t groups = p_.convolution.groups, rows = p_.rows();
    const bool packs = !is_packed(p_);
    const auto packed = packs ? temporary<T>(context, p_.result.channels * units_ * kUnit) : Temporary<T>();
    const auto offsets = temporary<int64_t>(context, gathered_);
    if (offsets == nullptr || (packs && packed == nullptr) ||
        (packs && !pack_weight(p_, dims_, units_, units_ != gathered_, packed.get()))) {
      return false;
    }
    weight_ = packs ? packed : p_.convolution.weight.data;
    blocks_.offsets(p_.source_channels(), offsets);
    offsets_ = offsets;
    const int64_t tasks = blocks_.blocks() * groups;
    if (tasks < kFewTasks && rows > kRows / 2) {
      return multiply_together();
    }
    const int64_t cost = blocks_.most_pixels() * rows / 16 * units_ + blocks_.size();
    return run_tasks<float>(
        context, tasks, row_grain_size(cost), blocks_.size() + panel_units() + rows * strip_,
        [&](int64_t task, float* memory) { multiply(task / groups, task % groups, memory); });
  }

 private:
  using Block = typename FeatureMapBlocks<T>::Block;
  static constexpr int64_t kUnit = sizeof(float) / sizeof(T);

  // Pixels of a block, and where they lie in the result.
  struct Strip {
    int64_t count;
    T* corner;  // of the block in the first row's plane
    int64_t run_count;
    Run runs[kMostPixels];
    bool is_direct;  // one after the other
  };

  int64_t panel_units() const { return strip_ * chunk_; }
  int64_t pixels_of(const Block& block) const { return block.samples * blocks_.pixels(block).of_sample(); }

  Strip strip_of(const Block& block, int64_t first, int64_t group) const {
    Pixels pixels = blocks_.pixels(block);
    pixels.sample_stride = result_.batch_stride;
    std::copy_n(result_.stride, kSpatial, pixels.stride);
    int64_t begin[kSpatial];
    blocks_.begin_of(block, begin);
    Strip strip;
    strip.count = std::min(strip_, pixels_of(block) - first);
    strip.corner = result_.data + block.sample * result_.batch_stride +
                   group * p_.rows() * result_.channel_stride + begin[0] * result_.stride[0] +
                   begin[1] * result_.stride[1] + begin[2] * result_.stride[2];
    strip.run_count = pixels.runs(first, strip.count, 0, strip.runs);
    strip.is_direct = strip.run_count == 1 && (result_.stride[2] == 1 || strip.count == 1);
    return strip;
  }

  // A group, at the pixels of a block.
  void multiply(int64_t index, int64_t group, float* memory) const {
    const int64_t channels = p_.source_channels(), rows = p_.rows();
    const Block block = blocks_.block(index, group * channels);
    const float* const filled = blocks_.fill(block, channels, memory, p_.with.copy_units);
    float* const panels = memory + blocks_.size();
    T* const sums = reinterpret_cast<T*>(panels + panel_units());
    for (int64_t first = 0; first < pixels_of(block); first += strip_) {
      const Strip strip = strip_of(block, first, group);
      for (int64_t k = 0; k < units_; k += chunk_) {
        const int64_t depth = std::min(chunk_, units_ - k), from_map = std::min(depth, gathered_ - k);
        if (from_map > 0) {
          gather_panels(blocks_, block, filled, offsets_ + k, from_map, first, strip.count, panels, chunk_);
        }
        if (from_map < depth) {
          put_ones(panels + from_map * kPanel, strip.count, chunk_);
        }
        for (int64_t row = 0; row < rows; row += kRows) {
          multiply_rows(strip, group, row, std::min(kRows, rows - row), panels, chunk_, k, depth,
                        sums + row * strip_);
        }
      }
    }
  }

  // Some blocks at a time, since each time the threads wait for one another.
  bool multiply_together() const {
    KernelRuntimeContext& context = p_.convolution.context;
    const int64_t channels = p_.source_channels(), rows = p_.rows(), groups = p_.convolution.groups;
    const int64_t channels_of_part = ceil_divided(ceil_divided(channels, kUnit), kFewTasks) * kUnit;
    const int64_t rows_of_part = ceil_divided(rows, ceil_divided(rows, kRows / 2));
    FeatureMapBlocks<T> part(p_.source, dims_, channels_of_part, kUnit == 2, true);
    part.divide_as(blocks_.band(), blocks_.samples());
    const int64_t tasks = blocks_.blocks() * groups, most = blocks_.most_pixels();
    const int64_t panels_of_block = ceil_divided(most, strip_) * strip_ * units_;
    const int64_t at_once = std::clamp<int64_t>(kUnitsTogether / panels_of_block, 1, tasks);
    const Tasks<float> gathering(context, at_once * ceil_divided(channels, channels_of_part),
                                 row_grain_size(channels_of_part * kernel_size_ * most / 8), part.size());
    const Tasks<float> multiplying(context, at_once * ceil_divided(rows, rows_of_part),
                                   row_grain_size(rows_of_part * most / 16 * units_), rows_of_part * strip_);
    const auto panels = temporary<float>(context, at_once * panels_of_block);
    if (!gathering.has_memory() || !multiplying.has_memory() || panels == nullptr) {
      return false;
    }
    for (int64_t begin = 0; begin < tasks; begin += at_once) {
      gathering.run([&](int64_t index, float* memory) {
        const int64_t task = begin + index % at_once, channel = index / at_once * channels_of_part;
        if (task >= tasks) {
          return;
        }
        const Block own = part.block(task / groups, task % groups * channels + channel);
        const int64_t count = std::min(channels_of_part, channels - channel);
        const float* const filled = part.fill(own, count, memory, p_.with.copy_units);
        gather_panels(
            part, own, filled, offsets_, ceil_divided(count, kUnit) * kernel_size_, 0, pixels_of(own),
            panels + index % at_once * panels_of_block + channel / kUnit * kernel_size_ * kPanel, units_);
        if (channel == 0 && gathered_ < units_) {
          put_ones(panels + index % at_once * panels_of_block + gathered_ * kPanel, pixels_of(own), units_);
        }
      });
      multiplying.run([&](int64_t index, float* memory) {
        const int64_t task = begin + index % at_once, row = index / at_once * rows_of_part;
        if (task >= tasks) {
          return;
        }
        const Block block = blocks_.block(task / groups, task % groups * channels);
        for (int64_t first = 0; first < pixels_of(block); first += strip_) {
          multiply_rows(strip_of(block, first, task % groups), task % groups, row,
                        std::min(rows_of_part, rows - row),
                        panels + index % at_once * panels_of_block + first * units_, units_, 0, units_,
                        reinterpret_cast<T*>(memory));
        }
      });
    }
    return true;
  }

  // Panels of patches, some units of their `depth`. What is stored of a unit may end in the next one, but for
  // the last: that may be another thread's.
  static void gather_panels(const FeatureMapBlocks<T>& blocks, const Block& block, const float* filled,
                            const int64_t* offsets, int64_t units, int64_t first, int64_t count,
                            float* panels, int64_t depth) {
    const Pixels from = blocks.pixels(block);
    for (int64_t j = 0; j < count; j += kPanel) {
      Run runs[kPanel];
      const int64_t run_count = from.runs(first + j, std::min(kPanel, count - j), 0, runs);
      const auto gather = [&](int64_t begin, int64_t end, float* to) {
        OPSMITH_BEST(gather)
        (filled, offsets + begin, end - begin, runs, run_count, to, kPanel, blocks.is_in_place());
      };
      float* const panel = panels + j * depth;
      float last[2 * kPanel];
      gather(0, units - 1, panel);
      gather(units - 1, units, last);
      std::copy_n(last, kPanel, panel + (units - 1) * kPanel);
    }
  }

  // The unit of the bias, in each panel.
  static void put_ones(float* unit, int64_t count, int64_t depth) {
    for (int64_t j = 0; j < count; j += kPanel) {
      T* const ones = reinterpret_cast<T*>(unit + j * depth);
      for (int64_t i = 0; i < kPanel * kUnit; ++i) {
        ones[i] = i % kUnit == 0 ? one_of<T>() : T{};
      }
    }
  }

  // Some rows of a group at a strip, by the panels of `depth` units from unit k on, `panel_depth` apart.
  void multiply_rows(const Strip& strip, int64_t group, int64_t row, int64_t rows, const float* panels,
                     int64_t panel_depth, int64_t k, int64_t depth, T* sums) const {
    T* const corner = strip.corner + row * result_.channel_stride;
    Matmul<T> matmul;
    matmul.a = weight_ + ((group * p_.rows() + row) * units_ + k) * kUnit;
    matmul.a_row = units_ * kUnit;
    matmul.b = reinterpret_cast<const T*>(panels);
    matmul.b_depth = kUnit == 2 ? 0 : kPanel;
    matmul.b_panel = panel_depth * kPanel * kUnit;
    matmul.c = strip.is_direct ? corner + strip.runs[0].from : sums;
    matmul.c_row = strip.is_direct ? result_.channel_stride : strip_;
    matmul.columns = strip.count;
    matmul.depth = depth * kUnit;
    matmul.beta = k > 0 ? 1.0f : 0.0f;
    matmul.paired = multiplies_bfloat16();
    if (kUnit == 1 && k == 0 && p_.bias != nullptr) {
      matmul.row_bias = p_.bias + group * p_.rows() + row;
    }
    p_.with.product.matmul(matmul, 0, rows, 0, panels_of(strip.count));
    for (int64_t i = 0; !strip.is_direct && k + depth == units_ && i < rows; ++i) {
      spread(sums + i * strip_, strip.runs, strip.run_count, result_.stride[2],
             corner + i * result_.channel_stride);
    }
  }

  static void spread(const T* line, const Run* runs, int64_t run_count, int64_t step, T* to) {
    for (int64_t r = 0; r < run_count; ++r) {
      for (int64_t x = 0; x < runs[r].count; ++x) {
        to[runs[r].from + x * step] = line[runs[r].at + x];
      }
    }
  }

  const MapProduct<T>& p_;
  const WindowDim (&dims_)[kSpatial];
  const FeatureMap<T> result_;
  const int64_t kernel_size_;
  const FeatureMapBlocks<T> blocks_;
  // Units of depth: from the map, in all, and at once; and pixels of a strip.
  const int64_t gathered_;
  const int64_t units_;
  const int64_t chunk_;
  const int64_t strip_;
  const T* weight_ = nullptr;
  const int64_t* offsets_ = nullptr;
};

// Pixels that no place in the kernel reaches.
template <class T>
void put_bias(const MapProduct<T>& p, const WindowDim (&dims)[kSpatial]) {
  const FeatureMap<T> to = phase_of(p.result, dims);
  parallel(to.planes(), row_grain_size(to.pixels()), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T value = p.bias == nullptr ? T{} : p.bias[plane % to.channels];
      for (int64_t x = 0; x < to.size[0]; ++x) {
        for (int64_t y = 0; y < to.size[1]; ++y) {
          T* const row = to.data + to.plane(plane) + x * to.stride[0] + y * to.stride[1];
          for (int64_t z = 0; z < to.size[2]; ++z) {
            row[z * to.stride[2]] = value;
          }
        }
      }
    }
  });
}

// Whether the dimensions are those of a kernel of 3 × 3 pixels one after the other.
bool is_by_three(const WindowDim (&dims)[kSpatial]) {
  const auto is_three = [](const WindowDim& dim) {
    return dim.kernel_size == 3 && dim.step == 1 && dim.dilation == 1 && dim.result_step == 1 &&
           dim.kernel_step == 1;
  };
  return dims[0].kernel_size == 1 && dims[0].count == 1 && dims[0].first == 0 && is_three(dims[1]) &&
         is_three(dims[2]);
}

// By Winograd's algorithm, where that is faster; kNotFinite too where it is not.
WinogradEnd multiply_by_winograd(const MapProduct<float>& p, const WindowDim (&dims)[kSpatial]) {
  if (p.convolution.groups != 1 || !is_by_three(dims) || p.result.stride[2] != 1) {
    return WinogradEnd::kNotFinite;
  }
  WinogradProduct product{p.source,    p.result,       {dims[1].first, dims[2].first},
                          p.weight(0), p.row_stride(), p.channel_stride(),
                          {},          p.bias};
  for (int64_t d = 1; d < kSpatial; ++d) {
    const int64_t stride = p.convolution.weight.stride[d];
    product.place_stride[d - 1] = dims[d].is_reversed ? -stride : stride;
    product.weight += dims[d].is_reversed ? 2 * stride : 0;
  }
  return winograd_pays(product) ? optimized::multiply_by_winograd(p.convolution.context, product)
                                : WinogradEnd::kNotFinite;
}

// Maps of a pixel each, at a place in the kernel: rows of samples times the weight.
template <class T>
bool multiply_pixels(const MapProduct<T>& p, int64_t place) {
  Product<T> product;
  product.rows = p.result.batch;
  product.columns = p.rows();
  product.depth = p.source_channels();
  product.a = {p.source.data, p.source.batch_stride, p.source.channel_stride, 0};
  product.b = {p.weight(0) + place, p.channel_stride(), p.row_stride(), 0};
  product.c = {p.result.data, p.result.batch_stride, p.result.channel_stride, 0};
  product.bias = p.bias;
  return multiply(p.convolution.context, product, p.with.product);
}

// Maps whose planes lie in one run, at a place in the kernel: the weight times each sample's planes.
Product<float> product_of_planes(const MapProduct<float>& p, int64_t place) {
  Product<float> product;
  product.batches = p.result.batch;
  product.rows = p.rows();
  product.columns = p.result.pixels();
  product.depth = p.source_channels();
  product.a = {p.weight(0) + place, p.row_stride(), p.channel_stride(), 0};
  product.b = {p.source.data, p.source.channel_stride, 1, p.source.batch_stride};
  product.c = {p.result.data, p.result.channel_stride, 1, p.result.batch_stride};
  product.row_bias = p.bias;
  return product;
}

template <class T>
bool has_one_run(const FeatureMap<T>& map) {
  int64_t next = 1;
  for (int64_t d = kSpatial - 1; d >= 0; --d) {
    if (map.size[d] != 1 && map.stride[d] != next) {
      return false;
    }
    next *= map.size[d];
  }
  return true;
}

// Whether each pixel of a map of `size` is that of `source` at its place, times one weight for each channel.
template <class T>
bool is_pointwise(int64_t groups, const FeatureMap<T>& source, const int64_t* size,
                  const WindowDim (&dims)[kSpatial]) {
  for (int64_t d = 0; d < kSpatial; ++d) {
    if (dims[d].kernel_size != 1 || dims[d].first != 0 || source.size[d] != size[d] ||
        dims[d].count != size[d] || (dims[d].count != 1 && dims[d].step != 1)) {
      return false;
    }
  }
  return groups == 1;
}

template <class T>
bool multiply_products(const MapProduct<T>& p, const WindowDim (&dims)[kSpatial]) {
  if (is_pointwise(p.convolution.groups, p.source, p.result.size, dims)) {
    const int64_t first[kSpatial] = {};
    const int64_t place = weight_offset(p.convolution.weight, dims, first);
    if (p.result.pixels() == 1 && p.result.channel_stride == 1) {
      return multiply_pixels(p, place);
    }
    if constexpr (std::is_same_v<T, float>) {
      const Product<float> product = product_of_planes(p, place);
      if (has_one_run(p.source) && has_one_run(p.result) && reads_rows(product)) {
        return multiply(p.convolution.context, product, p.with.product);
      }
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    const WinogradEnd end = multiply_by_winograd(p, dims);
    if (end != WinogradEnd::kNotFinite) {
      return end == WinogradEnd::kDone;
    }
  }
  return PatchProduct<T>(p, dims).run();
}

template <class T>
bool multiply_maps(const MapProduct<T>& p) {
  const ConvolutionWindow& window = p.convolution.window;
  const int64_t* const size = p.result.size;
  if (p.result.batch == 0 || p.result.channels == 0 || size[0] * size[1] * size[2] == 0) {
    return true;
  }
  const bool is_few = p.source_channels() == 1 && p.rows() <= kFewRows;
  if constexpr (std::is_same_v<T, float>) {
    if (p.from_small && is_dense(p.convolution.weight, window) &&
        p.convolution.weight.small_stride == p.rows() * window.kernel_size()) {
      const ColumnProduct columns{p.source, p.result, window, p.convolution.groups, p.convolution.weight.data,
                                  p.bias};
      if (column_matmul_pays(columns)) {
        return multiply_columns(p.convolution.context, columns);
      }
    }
  }
  int64_t phases[kSpatial];
  for (int64_t d = 0; d < kSpatial; ++d) {
    phases[d] = p.from_small ? std::min(window.stride[d], size[d]) : 1;
  }
  for (int64_t i = 0; i < phases[0]; ++i) {
    for (int64_t j = 0; j < phases[1]; ++j) {
      for (int64_t k = 0; k < phases[2]; ++k) {
        const int64_t phase[kSpatial] = {i, j, k};
        WindowDim dims[kSpatial];
        for (int64_t d = 0; d < kSpatial; ++d) {
          dims[d] =
              p.from_small ? dim_of_large(window, d, size[d], phase[d]) : dim_of_small(window, d, size[d]);
        }
        if (p.source_channels() * dims[0].kernel_size * dims[1].kernel_size * dims[2].kernel_size == 0) {
          put_bias(p, dims);
        } else if (!(is_few ? add_depthwise(p, dims) : multiply_products(p, dims))) {
          return false;
        }
      }
    }
  }
  return true;
}

// ---- gradients of weight and bias

// The operands of both ways to the weight's gradient; sums are [groups][channels of large, kernel][small
// channels].
template <class T>
struct WeightProduct {
  const Convolution<T>& convolution;
  FeatureMap<const T> large;
  FeatureMap<const T> small;
  const ConvolutionFunctions<T>& with;

  int64_t rows() const { return large.channels / convolution.groups * convolution.window.kernel_size(); }
  int64_t columns() const { return small.channels / convolution.groups; }
};

template <class T>
bool sum_depthwise_gradient(const WeightProduct<T>& p, const WindowDim (&dims)[kSpatial],
                            const WindowDim (&points)[kSpatial]) {
  KernelRuntimeContext& context = p.convolution.context;
  const int64_t kernel_size = p.rows(), columns = p.columns(), groups = p.convolution.groups;
  const FeatureMapBlocks<T> large(p.large, dims, 1, false, true);
  FeatureMapBlocks<T> small(p.small, points, 1, false, true);
  small.divide_as(large.band(), large.samples());
  const auto offsets = temporary<int64_t>(context, kernel_size);
  if (offsets == nullptr) {
    return false;
  }
  large.offsets(1, offsets);
  const int64_t cost = large.blocks() * large.most_pixels() * columns * kernel_size / 8;
  const int64_t total_units = 2 * kernel_size;
  return run_tasks<float>(
      context, groups, row_grain_size(cost), large.size() + small.size() + total_units + 16,
      [&](int64_t group, float* memory) {
        float* const small_memory = memory + ceil_divided(large.size(), 16) * 16;
        double* const totals = reinterpret_cast<double*>(memory + (large.size() + small.size() + 15) / 2 * 2);
        for (int64_t column = 0; column < columns; ++column) {
          std::fill_n(totals, kernel_size, 0.0);
          for (int64_t b = 0; b < large.blocks(); ++b) {
            const auto block = large.block(b, group);
            const auto own = small.block(b, group * columns + column);
            const float* const filled = large.fill(block, 1, memory, p.with.copy_floats);
            const float* const grad = small.fill(own, 1, small_memory, p.with.copy_floats);
            const Pixels from = large.pixels(block), of_grad = small.pixels(own);
            for (int64_t sample = 0; sample < block.samples; ++sample) {
              for (int64_t x = 0; x < from.count[0]; ++x) {
                DepthwiseGradient sums;
                sums.block = filled + sample * from.sample_stride + x * from.stride[0];
                sums.block_row = from.stride[1];
                sums.offsets = offsets;
                sums.kernel_size = kernel_size;
                sums.grad = grad + sample * of_grad.sample_stride + x * of_grad.stride[0];
                sums.grad_row = of_grad.stride[1];
                sums.rows = from.count[1];
                sums.columns = from.count[2];
                sums.sums = totals;
                OPSMITH_BEST(depthwise_gradient)(sums);
              }
            }
          }
          T* const to =
              p.convolution.weight.data + (group * columns + column) * p.convolution.weight.small_stride;
          for_each_place(p.convolution.weight, dims, [&](int64_t number, int64_t offset) {
            const float total = static_cast<float>(totals[number]);
            narrow(&total, to + offset, 1);
          });
        }
      });
}

// Adds up the parts and lays them as the weight lies, a square at a time.
template <class T>
void put_gradient(const WeightProduct<T>& p, const int64_t* places, const float* sums, int64_t parts,
                  int64_t part_units, int64_t row_units) {
  constexpr int64_t kSide = kPanel;
  const int64_t rows = p.rows(), columns = p.columns();
  const int64_t pieces = ceil_divided(rows, kSide);
  const auto put_square = [&](int64_t group, int64_t row, int64_t column) {
    const float* const from = sums + (group * rows + row) * row_units + column;
    const int64_t count = std::min(kSide, rows - row);
    float total[kSide][kSide] = {};
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t j = 0; j < kSide; ++j) {
          total[j][i] += from[part * part_units + i * row_units + j];
        }
      }
    }
    for (int64_t j = 0; j < std::min(kSide, columns - column); ++j) {
      T* const to =
          p.convolution.weight.data + (group * columns + column + j) * p.convolution.weight.small_stride;
      T narrowed[kSide];
      narrow(total[j], narrowed, count);
      for (int64_t i = 0; i < count; ++i) {
        to[places[row + i]] = narrowed[i];
      }
    }
  };
  parallel(p.convolution.groups * pieces, row_grain_size(kSide * columns * parts),
           [&](int64_t begin, int64_t end) {
             for (int64_t piece = begin; piece < end; ++piece) {
               for (int64_t column = 0; column < columns; column += kSide) {
                 put_square(piece / pieces, piece % pieces * kSide, column);
               }
             }
           });
}

// The weight's gradient as products of patches of the large map and panels of the small one. A task has some
// of the large map's channels, and some of the blocks.
template <class T>
class GradientProduct {
 public:
  GradientProduct(const WeightProduct<T>& product, const WindowDim (&dims)[kSpatial],
                  const WindowDim (&points)[kSpatial])
      : p_(product),
        dims_(dims),
        kernel_size_(product.convolution.window.kernel_size()),
        channels_(product.large.channels / product.convolution.groups),
        panels_(panels_of(product.columns())),
        channel_parts_(ceil_divided(
            channels_, std::max<int64_t>(1, kGradientRows / product.convolution.window.kernel_size()))),
        channels_of_part_(ceil_divided(channels_, channel_parts_)),
        large_(product.large, dims, channels_of_part_, false, true),
        small_(product.small, points, product.columns(), false, true) {
    small_.divide_as(large_.band(), large_.samples());
    const int64_t groups = product.convolution.groups;
    part_units_ = groups * product.rows() * row_units();
    if (groups * channel_parts_ < kFewTasks) {
      parts_ =
          std::clamp<int64_t>((int64_t{1} << 20) / part_units_, 1,
                              std::min(large_.blocks(), ceil_divided(kFewTasks, groups * channel_parts_)));
    }
    blocks_of_part_ = ceil_divided(large_.blocks(), parts_);
    parts_ = ceil_divided(large_.blocks(), blocks_of_part_);
    const int64_t row_bytes = kGradientBytes / most_rows();
    most_pixels_ =
        std::min(std::clamp(row_bytes / (paired_ ? 2 : 4) / kPanel * kPanel, kTilePixels, kMostPixels),
                 large_.most_pixels());
    pitch_ = ceil_divided(most_pixels_, kPanel) * kPanel + kSlack;
  }

  bool run() {
    KernelRuntimeContext& context = p_.convolution.context;
    const auto offsets = temporary<int64_t>(context, most_rows());
    const auto places = temporary<int64_t>(context, p_.rows());
    all_sums_ = temporary<float>(context, parts_ * part_units_);
    if (offsets == nullptr || places == nullptr || all_sums_ == nullptr) {
      return false;
    }
    large_.offsets(channels_of_part_, offsets);
    offsets_ = offsets;
    for (int64_t c = 0; c < channels_; ++c) {
      for_each_place(p_.convolution.weight, dims_, [&](int64_t number, int64_t offset) {
        places[c * kernel_size_ + number] = c * p_.convolution.weight.large_stride + offset;
      });
    }
    const int64_t cost = blocks_of_part_ * large_.most_pixels() * most_rows() / 16 * p_.columns();
    const int64_t units = large_units() + small_units() + patch_units() + panels_ * panel_units();
    const bool done =
        run_tasks<float>(context, p_.convolution.groups * channel_parts_ * parts_, row_grain_size(cost),
                         units, [&](int64_t task, float* memory) { multiply(task, memory); });
    if (done) {
      put_gradient(p_, places, all_sums_, parts_, part_units_, row_units());
    }
    return done;
  }

 private:
  int64_t row_units() const { return panels_ * kPanel; }
  int64_t most_rows() const { return channels_of_part_ * kernel_size_; }
  int64_t large_units() const { return ceil_divided(large_.size(), 16) * 16; }
  int64_t small_units() const { return ceil_divided(small_.size(), 16) * 16; }
  int64_t patch_units() const { return most_rows() * pitch_ + kSlack; }
  int64_t panel_units() const { return most_pixels_ * kPanel; }

  void multiply(int64_t task, float* memory) const {
    const int64_t part = task % parts_, channel_part = task / parts_ % channel_parts_;
    const int64_t group = task / parts_ / channel_parts_;
    const int64_t channel = channel_part * channels_of_part_;
    const int64_t channels = std::min(channels_of_part_, channels_ - channel);
    const int64_t columns = p_.columns();
    float* const small_memory = memory + large_units();
    float* const patches = small_memory + small_units();
    float* const packed = patches + patch_units();
    float* const sums =
        all_sums_ + part * part_units_ + (group * channels_ + channel) * kernel_size_ * row_units();
    bool accumulates = false;
    const int64_t end = std::min(large_.blocks(), (part + 1) * blocks_of_part_);
    for (int64_t b = part * blocks_of_part_; b < end; ++b) {
      const auto block = large_.block(b, group * channels_ + channel);
      const auto own = small_.block(b, group * columns);
      const float* const filled = large_.fill(block, channels, memory, p_.with.copy_floats);
      const float* const grad = small_.fill(own, columns, small_memory, p_.with.copy_floats);
      const Pixels from = large_.pixels(block), of_grad = small_.pixels(own);
      const int64_t pixels = block.samples * from.of_sample();
      for (int64_t first = 0; first < pixels; first += most_pixels_) {
        const int64_t count = std::min(most_pixels_, pixels - first);
        pack_gradient(of_grad, grad, first, count, packed);
        gather_patches(from, filled, channels * kernel_size_, first, count, patches);
        add_product(patches, packed, channels * kernel_size_, count, sums, accumulates);
        accumulates = true;
      }
    }
  }

  // The small map's pixels as the depth of panels.
  void pack_gradient(const Pixels& pixels, const float* grad, int64_t first, int64_t count,
                     float* packed) const {
    Run runs[kMostPixels];
    const int64_t run_count = pixels.runs(first, count, 0, runs);
    const int64_t stride = small_.channel_stride();
    for (int64_t panel = 0; panel < panels_; ++panel) {
      float* const to = packed + panel * panel_units();
      const int64_t columns = std::min(kPanel, p_.columns() - panel * kPanel);
      for (int64_t r = 0; r < run_count; ++r) {
        p_.with.float_product.pack(grad + panel * kPanel * stride + runs[r].from, 1, stride, runs[r].count,
                                   columns, to + runs[r].at * kPanel);
      }
      if (paired_) {
        OPSMITH_BEST(pair_panel)(to, count);
      }
    }
  }

  // A row for each channel of the large map and place in the kernel.
  void gather_patches(const Pixels& pixels, const float* filled, int64_t rows, int64_t first, int64_t count,
                      float* patches) const {
    Run runs[kPanel];
    Bfloat16* const pairs = reinterpret_cast<Bfloat16*>(patches);
    for (int64_t j = 0; j < count; j += kPanel) {
      const int64_t run_count = pixels.runs(first + j, std::min(kPanel, count - j), 0, runs);
      if (paired_) {
        OPSMITH_BEST(gather_bfloat16)(filled, offsets_, rows, runs, run_count, pairs + j, pitch_);
      } else {
        OPSMITH_BEST(gather)
        (filled, offsets_, rows, runs, run_count, patches + j, pitch_, large_.is_in_place());
      }
    }
  }

  void add_product(const float* patches, const float* packed, int64_t rows, int64_t count, float* sums,
                   bool accumulates) const {
    const auto multiply_as = [&](auto matmul, const auto& with) {
      using U = std::remove_const_t<std::remove_pointer_t<decltype(matmul.a)>>;
      matmul.a = reinterpret_cast<const U*>(patches);
      matmul.a_row = pitch_;
      matmul.b = reinterpret_cast<const U*>(packed);
      matmul.b_panel = panel_units() * static_cast<int64_t>(sizeof(float) / sizeof(U));
      matmul.c_row = matmul.columns = row_units();
      matmul.depth = count;
      matmul.beta = accumulates ? 1.0f : 0.0f;
      with.matmul(matmul, 0, rows, 0, panels_);
    };
    if constexpr (kIsShort) {
      if (paired_) {
        Matmul<T> matmul;
        matmul.b_depth = 0;
        matmul.c = nullptr;
        matmul.paired = true;
        matmul.sums = sums;
        return multiply_as(matmul, p_.with.product);
      }
    }
    Matmul<float> matmul;
    matmul.b_depth = kPanel;
    matmul.c = sums;
    multiply_as(matmul, p_.with.float_product);
  }

  static constexpr bool kIsShort = std::is_same_v<T, Bfloat16>;

  const WeightProduct<T>& p_;
  const WindowDim (&dims_)[kSpatial];
  // Widened bfloat16 are multiplied in pairs of pixels, where the processor can.
  const bool paired_ = kIsShort && multiplies_bfloat16();
  const int64_t kernel_size_;
  const int64_t channels_;  // of a group of the large map
  const int64_t panels_;
  const int64_t channel_parts_;
  const int64_t channels_of_part_;
  const FeatureMapBlocks<T> large_;
  FeatureMapBlocks<T> small_;
  int64_t parts_ = 1;
  int64_t blocks_of_part_;
  int64_t part_units_;
  int64_t most_pixels_;
  int64_t pitch_;
  const int64_t* offsets_ = nullptr;
  Temporary<float> all_sums_;
};

// The weight's gradient where it is larger than the maps: the small map times panels of the large one's
// patches, each result once and where it belongs. A task has some of the large map's channels.
class LargeGradientProduct {
 public:
  LargeGradientProduct(const WeightProduct<float>& product, const WindowDim (&dims)[kSpatial],
                       const WindowDim (&points)[kSpatial])
      : p_(product),
        kernel_size_(product.convolution.window.kernel_size()),
        channels_(product.large.channels / product.convolution.groups),
        channels_of_part_(ceil_divided(channels_, kFewTasks)),
        large_(product.large, dims, channels_of_part_, false, true),
        small_(product.small, points, product.columns(), false, true) {
    small_.divide_as(large_.band(), large_.samples());
    pitch_ = ceil_divided(large_.most_pixels(), kPanel) * kPanel + kSlack;
  }

  // Where the weight lies so, and there are few pixels.
  bool is_apt() const {
    return large_.blocks() * large_.most_pixels() <= 2 * p_.columns() &&
           is_dense(p_.convolution.weight, p_.convolution.window);
  }

  bool run() {
    KernelRuntimeContext& context = p_.convolution.context;
    const int64_t groups = p_.convolution.groups, columns = p_.columns();
    const int64_t parts = ceil_divided(channels_, channels_of_part_);
    const int64_t rows = channels_of_part_ * kernel_size_;
    const Tasks<float> gathering(context, 1, 1, small_.size());
    const Tasks<float> multiplying(context, parts, row_grain_size(columns * pitch_ / 16 * rows),
                                   units_of(large_.size()) + (rows + panels_of(rows) * kPanel + 1) * pitch_);
    const auto grad = temporary<float>(context, columns * pitch_ + kSlack);
    const auto patch_offsets = temporary<int64_t>(context, rows);
    const auto grad_offsets = temporary<int64_t>(context, columns);
    if (!gathering.has_memory() || !multiplying.has_memory() || grad == nullptr || patch_offsets == nullptr ||
        grad_offsets == nullptr) {
      return false;
    }
    large_.offsets(channels_of_part_, patch_offsets);
    small_.offsets(columns, grad_offsets);
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t b = 0; b < large_.blocks(); ++b) {
        gathering.run([&](int64_t, float* memory) {
          const auto block = small_.block(b, group * columns);
          const float* const filled = small_.fill(block, columns, memory, p_.with.copy_floats);
          gather_rows(small_, block, filled, grad_offsets, columns, grad);
        });
        multiplying.run([&](int64_t part, float* memory) {
          const int64_t channel = part * channels_of_part_;
          multiply(large_.block(b, group * channels_ + channel),
                   std::min(channels_of_part_, channels_ - channel), grad, patch_offsets,
                   p_.convolution.weight.data + group * columns * p_.convolution.weight.small_stride +
                       channel * kernel_size_,
                   b > 0, memory);
        });
      }
    }
    return true;
  }

 private:
  using Blocks = FeatureMapBlocks<float>;

  static int64_t units_of(int64_t size) { return ceil_divided(size, 16) * 16; }

  // Rows of a block's pixels.
  void gather_rows(const Blocks& blocks, const Blocks::Block& block, const float* filled,
                   const int64_t* offsets, int64_t rows, float* to) const {
    const Pixels pixels = blocks.pixels(block);
    const int64_t count = block.samples * pixels.of_sample();
    Run runs[kPanel];
    for (int64_t j = 0; j < count; j += kPanel) {
      const int64_t run_count = pixels.runs(j, std::min(kPanel, count - j), 0, runs);
      OPSMITH_BEST(gather)
      (filled, offsets, rows, runs, run_count, to + j, pitch_, blocks.is_in_place());
    }
  }

  void multiply(const Blocks::Block& block, int64_t channels, const float* grad, const int64_t* offsets,
                float* to, bool accumulates, float* memory) const {
    const int64_t rows = channels * kernel_size_;
    const int64_t count = block.samples * large_.pixels(block).of_sample();
    float* const patches = memory + units_of(large_.size());
    float* const panels = patches + (rows + 1) * pitch_;
    const float* const filled = large_.fill(block, channels, memory, p_.with.copy_floats);
    gather_rows(large_, block, filled, offsets, rows, patches);
    p_.with.product.pack(patches, 1, pitch_, count, rows, panels);
    Matmul<float> matmul;
    matmul.a = grad;
    matmul.a_row = pitch_;
    matmul.b = panels;
    matmul.b_depth = kPanel;
    matmul.b_panel = count * kPanel;
    matmul.c = to;
    matmul.c_row = p_.convolution.weight.small_stride;
    matmul.columns = rows;
    matmul.depth = count;
    matmul.beta = accumulates ? 1.0f : 0.0f;
    p_.with.product.matmul(matmul, 0, p_.columns(), 0, panels_of(rows));
  }

  const WeightProduct<float>& p_;
  const int64_t kernel_size_;
  const int64_t channels_;  // of a group of the large map
  const int64_t channels_of_part_;
  const FeatureMapBlocks<float> large_;
  FeatureMapBlocks<float> small_;
  int64_t pitch_;
};

// The weight's gradient where each pixel is multiplied by one weight and planes lie in one run: each sample's
// planes of the small map times those of the large one.
bool multiply_planes(const WeightProduct<float>& p) {
  Product<float> product;
  product.rows = p.small.channels;
  product.columns = p.large.channels;
  product.depth = p.small.pixels();
  product.a = {p.small.data, p.small.channel_stride, 1, 0};
  product.b = {p.large.data, 1, p.large.channel_stride, 0};
  product.c = {p.convolution.weight.data, p.convolution.weight.small_stride,
               p.convolution.weight.large_stride, 0};
  for (int64_t sample = 0; sample < p.small.batch; ++sample) {
    if (!multiply(p.convolution.context, product, p.with.product)) {
      return false;
    }
    product.a.data += p.small.batch_stride;
    product.b.data += p.large.batch_stride;
    product.beta = 1.0f;
  }
  return true;
}

template <class T>
bool multiply_weight(const WeightProduct<T>& p, int64_t weight_elements) {
  const int64_t* const size = p.small.size;
  if (weight_elements == 0) {
    return true;
  }
  if (p.small.batch == 0 || size[0] * size[1] * size[2] == 0) {
    std::memset(p.convolution.weight.data, 0, static_cast<size_t>(weight_elements) * sizeof(T));
    return true;
  }
  WindowDim dims[kSpatial], points[kSpatial];
  for (int64_t d = 0; d < kSpatial; ++d) {
    dims[d] = dim_of_small(p.convolution.window, d, size[d]);
    points[d].count = size[d];
    points[d].kernel_size = 1;
  }
  const bool is_few = p.large.channels == p.convolution.groups && p.columns() <= kFewRows;
  if (is_few) {
    return sum_depthwise_gradient(p, dims, points);
  }
  if constexpr (std::is_same_v<T, float>) {
    const int64_t pixels = p.small.pixels();
    // Threads share a sample's product, if it is large enough, and no samples.
    const bool is_shared = p.small.batch == 1 || p.small.channels >= 256 || p.large.channels > 64;
    const bool has_planes = is_shared && pixels >= kFewPixels && has_one_run(p.small) &&
                            has_one_run(p.large) && is_pointwise(p.convolution.groups, p.large, size, dims);
    LargeGradientProduct product(p, dims, points);
    if (!(has_planes && pixels >= kManyPixels) && product.is_apt()) {
      return product.run();
    }
    if (has_planes) {
      return multiply_planes(p);
    }
  }
  return GradientProduct<T>(p, dims, points).run();
}

// The sum of each channel.
template <class T>
bool sum_channels(KernelRuntimeContext& context, const FeatureMap<const T>& map,
                  const ConvolutionFunctions<T>& with, T* to) {
  const int64_t pixels = map.size[0] * map.size[1] * map.size[2];
  const auto totals = temporary<double>(context, map.channels);
  if (totals == nullptr) {
    return false;
  }
  std::fill_n(totals.get(), map.channels, 0.0);
  // From a pixel to the next, where all are evenly apart.
  int64_t step = 1, expected = 1;
  bool even = true;
  for (int64_t d = kSpatial - 1; d >= 0; --d) {
    if (map.size[d] == 1) {
      continue;
    }
    step = expected == 1 ? map.stride[d] : step;
    even = even && map.stride[d] == step * expected;
    expected *= map.size[d];
  }
  for (int64_t batch = 0; pixels > 0 && batch < map.batch; ++batch) {
    const T* const from = map.data + batch * map.batch_stride;
    if (even && step == 1) {
      with.sum_each(from, map.channels, map.channel_stride, pixels, totals);
    } else if (even && map.channel_stride == 1) {
      with.sum_rows(from, pixels, step, map.channels, totals);
    } else {
      for (int64_t c = 0; c < map.channels; ++c) {
        for (int64_t i = 0; i < pixels; ++i) {
          const int64_t q2 = i % map.size[2], q1 = i / map.size[2] % map.size[1];
          const int64_t q0 = i / map.size[2] / map.size[1];
          totals[c] += static_cast<double>(widened(
              from[c * map.channel_stride + q0 * map.stride[0] + q1 * map.stride[1] + q2 * map.stride[2]]));
        }
      }
    }
  }
  for (int64_t c = 0; c < map.channels; ++c) {
    const float total = static_cast<float>(totals[c]);
    narrow(&total, to + c, 1);
  }
  return true;
}

// ---- from tensors

// (batch, channels, spatial dimensions)
template <class T, class Of>
FeatureMap<T> feature_map_of(Of& tensor) {
  if constexpr (std::is_const_v<T>) {
    return feature_map_at(static_cast<T*>(tensor.const_data_ptr()), tensor, tensor.dim() - 2);
  } else {
    return feature_map_at(static_cast<T*>(tensor.mutable_data_ptr()), tensor, tensor.dim() - 2);
  }
}

template <class T, class Of>
Convolution<T> convolution_of(KernelRuntimeContext& context, Of& weight,
                              const ConvolutionParameters& parameters) {
  const FeatureMap<T> own = feature_map_of<T>(weight);
  Convolution<T> convolution{context,
                             convolution_window(weight, parameters),
                             parameters.groups,
                             {own.data, own.batch_stride, own.channel_stride, {}}};
  std::copy_n(own.stride, kSpatial, convolution.weight.stride);
  return convolution;
}

// The weight as make_finite leaves it, contiguous, in `elements`. Without memory, null.
template <class T>
Convolution<const T> finite_of(const Convolution<const T>& convolution, const Tensor& weight,
                               Temporary<T>& elements) {
  Convolution<const T> finite = convolution;
  elements = temporary<T>(convolution.context, weight.numel());
  if (elements != nullptr) {
    StridedIterator<1> all;
    for (size_t d = 0; d < static_cast<size_t>(weight.dim()); ++d) {
      all.add(weight.sizes()[d], {weight.strides()[d]});
    }
    T* to = elements;
    all.for_each(0, weight.numel(),
                 [&](const auto& at, const auto&) { *to++ = convolution.weight.data[at[0]]; });
    make_finite(weight.scalar_type(), elements, weight.numel());
  }
  const int64_t (&kernel)[kSpatial] = convolution.window.kernel;
  const int64_t places = convolution.window.kernel_size();
  finite.weight = {elements, weight.sizes()[1] * places, places, {kernel[1] * kernel[2], kernel[2], 1}};
  return finite;
}

// The large map `to` where the weight is not finite. See Note [Gaps] in nonfinite_weight.h.
template <class T>
[[gnu::cold, gnu::noinline]] bool multiply_apart(const MapProduct<T>& product, const Tensor& weight,
                                                 const Tensor& from, Tensor& to) {
  Temporary<T> elements;
  const Convolution<const T> finite = finite_of(product.convolution, weight, elements);
  if (finite.weight.data == nullptr || !multiply_maps<T>({finite, product.source, product.result,
                                                          product.from_small, product.bias, product.with})) {
    return false;
  }
  using Number = std::conditional_t<std::is_same_v<T, float>, float, executorch::aten::BFloat16>;
  add_nonfinite_products<Number>(finite.window, finite.groups, weight, from, to);
  return true;
}

// The map `to` from the other one.
template <class T>
bool make_map(const Convolution<const T>& convolution, const Tensor& weight, const T* bias,
              const Tensor& from, bool from_small, const ConvolutionFunctions<T>& with, Tensor& to) {
  const MapProduct<T> product{
      convolution, feature_map_of<const T>(from), feature_map_of<T>(to), from_small, bias, with};
  return multiply_maps(product) &&
         (!from_small || !has_products_of_gaps(weight, to) || multiply_apart(product, weight, from, to));
}

// ---- float16, by way of float32: see Note [Copies]

// Note [Copies]
// Maps and weights of float16 are widened before a convolution, and its results are rounded after it. So
// Winograd's algorithm and all other ways of float32 are float16's too, at the cost of memory for copies.

// The elements as they lie, in float32; null without memory.
Temporary<float> widened_elements(KernelRuntimeContext& context, const Tensor& tensor) {
  Temporary<float> elements = temporary<float>(context, tensor.numel());
  if (elements != nullptr) {
    const Float16* const from = static_cast<const Float16*>(tensor.const_data_ptr());
    parallel(tensor.numel(), kGrain, [from, to = elements.get()](int64_t begin, int64_t end) {
      OPSMITH_BEST(widen_float16)(from + begin, to + begin, end - begin);
    });
  }
  return elements;
}

void narrow_elements(const float* elements, Tensor& tensor) {
  Float16* const to = static_cast<Float16*>(tensor.mutable_data_ptr());
  parallel(tensor.numel(), kGrain,
           [elements, to](int64_t begin, int64_t end) { narrow(elements + begin, to + begin, end - begin); });
}

FeatureMap<const float> widened_map(const Tensor& tensor, const float* elements) {
  return feature_map_at(elements, tensor, tensor.dim() - 2);
}

// A weight of float16 as the widened elements that lie as it does.
template <class T, class Of>
Convolution<T> widened_convolution(KernelRuntimeContext& context, Of& weight, T* elements,
                                   const ConvolutionParameters& parameters) {
  Convolution<T> convolution = convolution_of<T>(context, weight, parameters);
  convolution.weight.data = elements;
  return convolution;
}

// As make_map does; weights that are not finite are replaced where they would meet gaps.
bool make_widened_map(KernelRuntimeContext& context, const Tensor& weight, float* weights,
                      const ConvolutionParameters& parameters, const float* bias, const Tensor& from,
                      const float* elements, bool from_small, const ConvolutionFunctions<float>& with,
                      Tensor& to) {
  const auto result = temporary<float>(context, to.numel());
  if (result == nullptr) {
    return false;
  }
  const auto convolution = widened_convolution<const float>(context, weight, weights, parameters);
  const bool has_gaps = from_small && has_products_of_gaps(weight, to);
  Temporary<float> finite;
  if (has_gaps) {
    finite = temporary<float>(context, weight.numel());
    if (finite == nullptr) {
      return false;
    }
    std::copy_n(weights, weight.numel(), finite.get());
    make_finite(ScalarType::Float, finite, weight.numel());
  }
  Convolution<const float> own = convolution;
  own.weight.data = has_gaps ? finite.get() : weights;
  if (!multiply_maps<float>({own, widened_map(from, elements), feature_map_at(result.get(), to, to.dim() - 2),
                             from_small, bias, with})) {
    return false;
  }
  narrow_elements(result, to);
  if (has_gaps) {
    add_nonfinite_products<executorch::aten::Half>(convolution.window, convolution.groups, weight, from, to);
  }
  return true;
}

// Calls compute with simd's functions of the dtype; false where no selected program uses it. Of float16 they
// are float32's.
#define OPSMITH_CONVOLUTION_BY_DTYPE(name, dtype, compute, widened_compute)                             \
  if ((dtype) == ScalarType::Float) {                                                                   \
    if constexpr (::opsmith::selected(name, ScalarType::Float)) {                                       \
      const ProductFunctions<float> product{OPSMITH_BEST(matmul_float), OPSMITH_BEST(dots_float),       \
                                            OPSMITH_BEST(pack_float)};                                  \
      compute(ConvolutionFunctions<float>{product, product, OPSMITH_BEST(copy_rows_float),              \
                                          OPSMITH_BEST(copy_rows_float), OPSMITH_BEST(depthwise_float), \
                                          OPSMITH_BEST(sum_each_float), OPSMITH_BEST(sum_rows_float)}); \
    }                                                                                                   \
  } else if ((dtype) == ScalarType::BFloat16) {                                                         \
    if constexpr (::opsmith::selected(name, ScalarType::BFloat16)) {                                    \
      compute(ConvolutionFunctions<Bfloat16>{                                                           \
          {OPSMITH_BEST(matmul_bfloat16), OPSMITH_BEST(dots_bfloat16), OPSMITH_BEST(pack_bfloat16)},    \
          {OPSMITH_BEST(matmul_float), OPSMITH_BEST(dots_float), OPSMITH_BEST(pack_float)},             \
          OPSMITH_BEST(copy_pairs),                                                                     \
          OPSMITH_BEST(copy_rows_bfloat16),                                                             \
          OPSMITH_BEST(depthwise_bfloat16),                                                             \
          OPSMITH_BEST(sum_each_bfloat16),                                                              \
          OPSMITH_BEST(sum_rows_bfloat16)});                                                            \
    }                                                                                                   \
  } else if constexpr (::opsmith::selected(name, ScalarType::Half)) {                                   \
    const ProductFunctions<float> product{OPSMITH_BEST(matmul_float), OPSMITH_BEST(dots_float),         \
                                          OPSMITH_BEST(pack_float)};                                    \
    widened_compute(ConvolutionFunctions<float>{                                                        \
        product, product, OPSMITH_BEST(copy_rows_float), OPSMITH_BEST(copy_rows_float),                 \
        OPSMITH_BEST(depthwise_float), OPSMITH_BEST(sum_each_float), OPSMITH_BEST(sum_rows_float)});    \
  }

template <class T>
struct ElementOf;
template <class T>
struct ElementOf<ConvolutionFunctions<T>> {
  using Type = T;
};

}  // namespace

namespace native {

Tensor& convolution_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, ConvolutionParameters::List stride,
                        ConvolutionParameters::List padding, ConvolutionParameters::List dilation,
                        bool transposed, ConvolutionParameters::List output_padding, int64_t groups,
                        Tensor& out) {
  const ConvolutionParameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  Dims sizes;
  if (!convolution_sizes(context, input, weight, parameters, sizes)) {
    return out;
  }
  const ScalarType dtype = input.scalar_type();
  OPSMITH_CHECK(context, is_taken(dtype) && out.scalar_type() == dtype, NotSupported, out,
                "convolution takes " OPSMITH_TAKEN ", all operands the same");
  if (!convolution_takes_bias(context, input, bias, sizes)) {
    return out;
  }
  if (!resize(context, out, sizes) || !one_layout(context, {&out, &input})) {
    return out;
  }
  const auto compute = [&](const auto& with) {
    using T = typename ElementOf<std::decay_t<decltype(with)>>::Type;
    const auto convolution = convolution_of<const T>(context, weight, parameters);
    make_map<T>(convolution, weight,
                bias.has_value() ? static_cast<const T*>(bias->const_data_ptr()) : nullptr, input, transposed,
                with, out);
  };
  [[maybe_unused]] const auto widened_compute = [&](const ConvolutionFunctions<float>& with) {
    const auto elements = widened_elements(context, input), weights = widened_elements(context, weight);
    const auto biases = bias.has_value() ? widened_elements(context, *bias) : Temporary<float>();
    if (elements != nullptr && weights != nullptr && (!bias.has_value() || biases != nullptr)) {
      make_widened_map(context, weight, weights, parameters, biases, input, elements, transposed, with, out);
    }
  };
  OPSMITH_CONVOLUTION_BY_DTYPE("convolution.out", dtype, compute, widened_compute)
  return out;
}

// Gradients of input, weight and bias, as output_mask asks for.
std::tuple<Tensor&, Tensor&, Tensor&> convolution_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& input, const Tensor& weight,
    std::optional<ConvolutionParameters::List> bias_sizes, ConvolutionParameters::List stride,
    ConvolutionParameters::List padding, ConvolutionParameters::List dilation, bool transposed,
    ConvolutionParameters::List output_padding, int64_t groups, executorch::aten::ArrayRef<bool> output_mask,
    Tensor& out0, Tensor& out1, Tensor& out2) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out0, out1, out2);
  const ConvolutionParameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  const ScalarType dtype = input.scalar_type();
  Dims sizes;
  if (!begins_convolution_backward(context, grad_output, input, weight, bias_sizes, parameters, output_mask,
                                   results, is_taken(dtype), sizes)) {
    return results;
  }
  if ((output_mask[0] && !resize_like(context, out0, input)) ||
      (output_mask[1] && !resize_like(context, out1, weight)) ||
      (output_mask[2] && !resize(context, out2, {sizes[1]}))) {
    return results;
  }
  const auto compute = [&](const auto& with) {
    using T = typename ElementOf<std::decay_t<decltype(with)>>::Type;
    const auto given = feature_map_of<const T>(input), grad = feature_map_of<const T>(grad_output);
    const auto convolution = convolution_of<const T>(context, weight, parameters);
    bool done = true;
    if (output_mask[0]) {
      done = make_map<T>(convolution, weight, nullptr, grad_output, !transposed, with, out0);
    }
    if (done && output_mask[1]) {
      const auto gradient = convolution_of<T>(context, out1, parameters);
      done = multiply_weight<T>({gradient, transposed ? grad : given, transposed ? given : grad, with},
                                weight.numel());
    }
    if (done && output_mask[2]) {
      sum_channels<T>(context, grad, with, static_cast<T*>(out2.mutable_data_ptr()));
    }
  };
  [[maybe_unused]] const auto widened_compute = [&](const ConvolutionFunctions<float>& with) {
    const auto given = widened_elements(context, input), grad = widened_elements(context, grad_output);
    const auto weights = output_mask[0] ? widened_elements(context, weight) : Temporary<float>();
    const auto weight_sums = output_mask[1] ? temporary<float>(context, weight.numel()) : Temporary<float>();
    const auto bias_sums = output_mask[2] ? temporary<float>(context, sizes[1]) : Temporary<float>();
    if (given == nullptr || grad == nullptr || (output_mask[0] && weights == nullptr) ||
        (output_mask[1] && weight_sums == nullptr) || (output_mask[2] && bias_sums == nullptr)) {
      return;
    }
    const auto given_map = widened_map(input, given), grad_map = widened_map(grad_output, grad);
    bool done = true;
    if (output_mask[0]) {
      done = make_widened_map(context, weight, weights, parameters, nullptr, grad_output, grad, !transposed,
                              with, out0);
    }
    if (done && output_mask[1]) {
      const auto gradient = widened_convolution(context, out1, weight_sums.get(), parameters);
      done = multiply_weight<float>(
          {gradient, transposed ? grad_map : given_map, transposed ? given_map : grad_map, with},
          weight.numel());
      if (done) {
        narrow_elements(weight_sums, out1);
      }
    }
    if (done && output_mask[2] && sum_channels<float>(context, grad_map, with, bias_sums.get())) {
      narrow_elements(bias_sums, out2);
    }
  };
  OPSMITH_CONVOLUTION_BY_DTYPE("convolution_backward.out", dtype, compute, widened_compute)
  return results;
}

}  // namespace native
}  // namespace opsmith::optimized
