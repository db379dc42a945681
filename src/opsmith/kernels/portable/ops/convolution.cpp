// convolution in one to three dimensions, with groups, dilation and transposition, and its gradients: all are
// matrix products (matmul.h) whose right operand is read from a feature map, a patch at a time. See
// Note [Large and small] in convolution_shape.h.
#include <optional>

#include "../../common/resize.h"
#include "../../common/temporary.h"
#include "../../common/convolution_shape.h"
#include "../../common/nonfinite_weight.h"
#include "../common_dtype.h"
#include "../matmul.h"
#include "../../common/feature_map.h"
#include "../lanes.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

// One feature map as seen from the pixels of the other, `grid`: see Note [Large and small]. Patches have an
// element for each channel and place in the kernel.
template <class C>
struct Patches {
  ByteFeatureMap map;
  const int64_t* grid;
  ConvolutionWindow window;
  bool from_small;  // the map is the small one
  Convert load;     // null where elements are of type C
  int64_t width;

  // An element of all patches.
  struct Element {
    int64_t channel;
    int64_t place[kSpatial];
  };
  // A pixel of the grid, through the batch.
  struct Pixel {
    int64_t batch;
    int64_t at[kSpatial];
  };

  Patches(const ByteFeatureMap& seen, const int64_t* sizes, const ConvolutionWindow& through, bool small,
          ScalarType dtype)
      : map(seen),
        grid(sizes),
        window(through),
        from_small(small),
        load(dtype == dtype_of<C> ? nullptr : conversion(dtype, dtype_of<C>)),
        width(static_cast<int64_t>(executorch::runtime::elementSize(dtype))) {}

  Element element(int64_t first_channel, int64_t k) const {
    Element element{first_channel + k / window.kernel_size(), {}};
    int64_t rest = k % window.kernel_size();
    for (int64_t d = kSpatial - 1; d >= 0; --d) {
      element.place[d] = rest % window.kernel[d];
      rest /= window.kernel[d];
    }
    return element;
  }
  void advance(Element& element) const {
    for (int64_t d = kSpatial - 1; d >= 0; --d) {
      if (++element.place[d] < window.kernel[d]) {
        return;
      }
      element.place[d] = 0;
    }
    ++element.channel;
  }
  Pixel pixel(int64_t index) const {
    Pixel pixel{};
    for (int64_t d = kSpatial - 1; d >= 0; --d) {
      pixel.at[d] = index % grid[d];
      index /= grid[d];
    }
    pixel.batch = index;
    return pixel;
  }

  // The element in the patches of `count` pixels from `pixel`.
  void gather(const Element& element, Pixel pixel, int64_t count, C* to) const {
    while (count > 0) {
      const int64_t n = std::min(count, grid[2] - pixel.at[2]);
      int64_t offset = pixel.batch * map.batch_stride + element.channel * map.channel_stride;
      bool inside = true;
      for (int64_t d = 0; d < 2; ++d) {
        const int64_t source = source_of(pixel.at[d], element.place[d], d);
        inside = inside && source >= 0;
        offset += source * map.stride[d];
      }
      if (inside) {
        gather_row(offset, element.place[2], pixel.at[2], n, to);
      } else {
        std::fill_n(to, n, C(0));
      }
      to += n;
      count -= n;
      pixel.at[2] = 0;
      if (++pixel.at[1] == grid[1]) {
        pixel.at[1] = 0;
        if (++pixel.at[0] == grid[0]) {
          pixel.at[0] = 0;
          ++pixel.batch;
        }
      }
    }
  }

 private:
  // The index in the map that meets index `at` of the grid, or -1.
  int64_t source_of(int64_t at, int64_t place, int64_t d) const {
    const int64_t shift = place * window.dilation[d] - window.padding[d];
    if (!from_small) {
      const int64_t source = at * window.stride[d] + shift;
      return source < map.size[d] ? source : -1;
    }
    const int64_t distance = at - shift;
    if (window.stride[d] == 1) {
      return distance < map.size[d] ? distance : -1;
    }
    const int64_t source = distance / window.stride[d];
    return distance >= 0 && distance % window.stride[d] == 0 && source < map.size[d] ? source : -1;
  }

  // n elements of a row of patches, from index `at` of the grid.
  void gather_row(int64_t offset, int64_t place, int64_t at, int64_t n, C* to) const {
    const int64_t stride = window.stride[2];
    const int64_t shift = place * window.dilation[2] - window.padding[2];
    const int64_t step = map.stride[2];
    if (!from_small) {
      const int64_t low = std::clamp(ceil_divided(-shift, stride), at, at + n);
      const int64_t high = std::clamp(floor_divided(map.size[2] - 1 - shift, stride) + 1, low, at + n);
      std::fill_n(to, low - at, C(0));
      read(offset + (low * stride + shift) * step, stride * step, high - low, to + (low - at));
      std::fill_n(to + (high - at), at + n - high, C(0));
      return;
    }
    const int64_t low = std::max<int64_t>(0, ceil_divided(at - shift, stride));
    const int64_t high = std::min(map.size[2], floor_divided(at + n - 1 - shift, stride) + 1);
    if (stride == 1 && high > low) {
      const int64_t begin = low + shift - at;
      std::fill_n(to, begin, C(0));
      read(offset + low * step, step, high - low, to + begin);
      std::fill_n(to + begin + high - low, n - begin - (high - low), C(0));
      return;
    }
    std::fill_n(to, n, C(0));
    for (int64_t i = low; i < high; ++i) {
      read(offset + i * step, step, 1, to + (i * stride + shift - at));
    }
  }

  void read(int64_t offset, int64_t step, int64_t n, C* to) const {
    const char* const from = map.data + offset * width;
    if (load == nullptr) {
      const C* const elements = reinterpret_cast<const C*>(from);
      for (int64_t i = 0; i < n; ++i) {
        to[i] = elements[i * step];
      }
    } else if (n > 0) {
      load(from, {1, n, 0, step}, to);
    }
  }
};

// The parameters that all products of a convolution share.
struct Convolution {
  KernelRuntimeContext& context;
  ScalarType dtype;
  ConvolutionWindow window;
  int64_t groups;
};

// Fewer rows than this are added up pixel by pixel: packing would cost more than it saves (depthwise).
constexpr int64_t kFewRows = 4;
constexpr int64_t kPixels = 256;

// Writes sums of consecutive pixels of one channel.
template <class C>
void put_pixels(const ByteFeatureMap& map, int64_t width, Convert store, int64_t channel, int64_t first,
                int64_t count, const C* sums) {
  int64_t at[kSpatial];
  int64_t batch = first;
  for (int64_t d = kSpatial - 1; d >= 0; --d) {
    at[d] = batch % map.size[d];
    batch /= map.size[d];
  }
  while (count > 0) {
    const int64_t n = std::min({count, map.size[2] - at[2], kPixels});
    int64_t offset = batch * map.batch_stride + channel * map.channel_stride;
    for (int64_t d = 0; d < kSpatial; ++d) {
      offset += at[d] * map.stride[d];
    }
    if (map.stride[2] == 1 || n == 1) {
      store(sums, {1, n, 0, 1}, map.data + offset * width);
    } else {
      alignas(64) char block[kPixels * sizeof(C)];
      store(sums, {1, n, 0, 1}, block);
      spread(static_cast<size_t>(width), block, map.data + offset * width, map.stride[2], n);
    }
    sums += n;
    count -= n;
    at[2] += n;
    for (int64_t d = kSpatial - 1; d >= 0 && at[d] == map.size[d]; --d) {
      at[d] = 0;
      ++(d == 0 ? batch : at[d - 1]);
    }
  }
}

// A product (see map_product) of few rows: sums over the patches, whose elements are read once for all of
// them.
template <class C, class Finish>
void few_rows_product(const Convolution& convolution, const char* weight, Convert load,
                      const Patches<C>& patches, int64_t rows, int64_t depth, int64_t pixels,
                      const Finish& finish) {
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(convolution.dtype));
  const int64_t channels = depth / convolution.window.kernel_size();
  const int64_t blocks = ceil_divided(pixels, kPixels);
  const int64_t work = std::max<int64_t>(1, depth * kPixels);
  parallel(blocks * convolution.groups, grain_size(work), [&](int64_t begin, int64_t end) {
    C sums[kFewRows][kPixels];
    C patch[kPixels];
    C factors[kPixels];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / blocks;
      const int64_t first = task % blocks * kPixels;
      const int64_t count = std::min(kPixels, pixels - first);
      for (int64_t i = 0; i < rows; ++i) {
        std::fill_n(sums[i], count, C(0));
      }
      auto element = patches.element(group * channels, 0);
      const auto pixel = patches.pixel(first);
      for (int64_t k = 0; k < depth; ++k, patches.advance(element)) {
        patches.gather(element, pixel, count, patch);
        load(weight + (group * rows * depth + k) * width, {1, rows, 0, depth}, factors);
        for (int64_t i = 0; i < rows; ++i) {
          const C factor = factors[i];
          for (int64_t x = 0; x < count; ++x) {
            sums[i][x] += factor * patch[x];
          }
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        finish(group * rows + i, first, sums[i], count);
      }
    }
  });
}

// result (large or small) from the other one: rows of the weight, as (groups, rows, depth), times patches.
template <class C>
[[gnu::noinline]] void map_product(const Convolution& convolution, const char* weight, const char* bias,
                                   const ByteFeatureMap& map, bool from_small, const ByteFeatureMap& result) {
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(convolution.dtype));
  const Convert load = conversion(convolution.dtype, dtype_of<C>);
  const Convert store = conversion(dtype_of<C>, convolution.dtype);
  const int64_t rows = result.channels / convolution.groups;
  const int64_t map_channels = map.channels / convolution.groups;
  const int64_t depth = map_channels * convolution.window.kernel_size();
  const int64_t pixels = result.batch * result.pixels();
  if (pixels == 0 || rows == 0) {
    return;
  }
  const Patches<C> patches(map, result.size, convolution.window, from_small, convolution.dtype);
  const auto finish = [&](int64_t channel, int64_t first, C* sums, int64_t count) {
    if (bias != nullptr) {
      C added;
      load(bias + channel * width, {1, 1, 0, 1}, &added);
      for (int64_t i = 0; i < count; ++i) {
        sums[i] += added;
      }
    }
    put_pixels(result, width, store, channel, first, count, sums);
  };
  if (rows < kFewRows) {
    few_rows_product<C>(convolution, weight, load, patches, rows, depth, pixels, finish);
    return;
  }
  const auto workspace = temporary<C>(convolution.context, matmul_workspace<C>(rows, pixels, depth));
  for (int64_t group = 0; workspace != nullptr && group < convolution.groups; ++group) {
    const char* const own = weight + group * rows * depth * width;
    matmul<C>(
        rows, pixels, depth,
        [&](int64_t first, int64_t lines, int64_t start, int64_t count, int64_t panel, C* packed) {
          const char* const from = own + (first * depth + start) * width;
          if (lines == panel) {
            load(from, {count, panel, 1, depth}, packed);
            return;
          }
          for (int64_t p = 0; p < count; ++p) {
            load(from + p * width, {1, lines, 0, depth}, packed + p * panel);
          }
        },
        [&](int64_t first, int64_t lines, int64_t start, int64_t count, int64_t panel, C* packed) {
          auto element = patches.element(group * map_channels, start);
          const auto pixel = patches.pixel(first);
          for (int64_t p = 0; p < count; ++p, patches.advance(element)) {
            patches.gather(element, pixel, lines, packed + p * panel);
          }
        },
        [&](int64_t i, int64_t j, C* sums, int64_t count) { finish(group * rows + i, j, sums, count); },
        workspace);
  }
}

// A window of one pixel, through which a map is seen as it is.
constexpr ConvolutionWindow kPoint{{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};

// Few rows of a weight (see weight_product): each element of the large map's patches is read once for them.
template <class C>
void few_rows_weight(const Convolution& convolution, const Patches<C>& left, const Patches<C>& right,
                     Convert store, int64_t rows, int64_t columns, int64_t pixels, char* weight) {
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(convolution.dtype));
  const int64_t channels = columns / convolution.window.kernel_size();
  const int64_t tasks = convolution.groups * columns;
  parallel(tasks, grain_size(pixels), [&](int64_t begin, int64_t end) {
    C own[kPixels];
    C patch[kPixels];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / columns;
      const auto element = right.element(group * channels, task % columns);
      C sums[kFewRows] = {};
      for (int64_t first = 0; first < pixels; first += kPixels) {
        const int64_t count = std::min(kPixels, pixels - first);
        const auto pixel = right.pixel(first);
        right.gather(element, pixel, count, patch);
        for (int64_t i = 0; i < rows; ++i) {
          left.gather(left.element(group * rows + i, 0),
                      {pixel.batch, {pixel.at[0], pixel.at[1], pixel.at[2]}}, count, own);
          sums[i] += sum_of<C>(count, [&](int64_t p) { return own[p] * patch[p]; });
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        store(sums + i, {1, 1, 0, 1}, weight + ((group * rows + i) * columns + task % columns) * width);
      }
    }
  });
}

// The contiguous weight from both maps: (channels of the small one) x (channels of the large one, kernel).
template <class C>
[[gnu::noinline]] void weight_product(const Convolution& convolution, const ByteFeatureMap& large,
                                      const ByteFeatureMap& small, char* weight) {
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(convolution.dtype));
  const Convert store = conversion(dtype_of<C>, convolution.dtype);
  const int64_t rows = small.channels / convolution.groups;
  const int64_t large_channels = large.channels / convolution.groups;
  const int64_t columns = large_channels * convolution.window.kernel_size();
  const int64_t pixels = small.batch * small.pixels();
  if (pixels == 0) {
    std::memset(weight, 0, static_cast<size_t>(convolution.groups * rows * columns * width));
    return;
  }
  const Patches<C> left(small, small.size, kPoint, false, convolution.dtype);
  const Patches<C> right(large, small.size, convolution.window, false, convolution.dtype);
  if (rows < kFewRows) {
    few_rows_weight<C>(convolution, left, right, store, rows, columns, pixels, weight);
    return;
  }
  const auto workspace = temporary<C>(convolution.context, matmul_workspace<C>(rows, columns, pixels));
  const auto pack = [](const Patches<C>& patches, int64_t channel, int64_t first, int64_t lines,
                       int64_t start, int64_t count, int64_t panel, C* packed) {
    C line[detail::kBlockDepth];
    auto element = patches.element(channel, first);
    const auto pixel = patches.pixel(start);
    for (int64_t i = 0; i < lines; ++i, patches.advance(element)) {
      patches.gather(element, pixel, count, line);
      for (int64_t p = 0; p < count; ++p) {
        packed[p * panel + i] = line[p];
      }
    }
  };
  for (int64_t group = 0; workspace != nullptr && group < convolution.groups; ++group) {
    matmul<C>(
        rows, columns, pixels,
        [&](int64_t first, int64_t lines, int64_t start, int64_t count, int64_t panel, C* packed) {
          pack(left, group * rows, first, lines, start, count, panel, packed);
        },
        [&](int64_t first, int64_t lines, int64_t start, int64_t count, int64_t panel, C* packed) {
          pack(right, group * large_channels, first, lines, start, count, panel, packed);
        },
        [&](int64_t i, int64_t j, C* sums, int64_t count) {
          store(sums, {1, count, 0, 1}, weight + ((group * rows + i) * columns + j) * width);
        },
        workspace);
  }
}

// The sum of each channel.
template <class C>
[[gnu::noinline]] void channel_sums(const Convolution& convolution, const ByteFeatureMap& map, char* sums) {
  const int64_t width = static_cast<int64_t>(executorch::runtime::elementSize(convolution.dtype));
  const Convert store = conversion(dtype_of<C>, convolution.dtype);
  const Patches<C> pixels_of(map, map.size, kPoint, false, convolution.dtype);
  const int64_t pixels = map.batch * map.pixels();
  parallel(map.channels, grain_size(pixels), [&](int64_t begin, int64_t end) {
    C line[kPixels];
    for (int64_t channel = begin; channel < end; ++channel) {
      C sum = 0;
      for (int64_t first = 0; first < pixels; first += kPixels) {
        const int64_t count = std::min(kPixels, pixels - first);
        pixels_of.gather(pixels_of.element(channel, 0), pixels_of.pixel(first), count, line);
        C part = 0;
        for (int64_t i = 0; i < count; ++i) {
          part += line[i];
        }
        sum += part;
      }
      store(&sum, {1, 1, 0, 1}, sums + channel * width);
    }
  });
}

// A copy of the weight as (groups, rows, depth) for a product: with its two kinds of channels exchanged
// within each group, or as it stands. Null with the call rejected.
Temporary<char> copied_rows(KernelRuntimeContext& context, const Tensor& weight, int64_t groups,
                            bool exchanged) {
  const auto rows = temporary<char>(context, static_cast<int64_t>(weight.nbytes()));
  if (rows == nullptr) {
    return {};
  }
  Dims sizes = sizes_of(weight);
  Dims strides = strides_of(weight);
  sizes[0] /= groups;
  sizes.insert(0, groups);
  strides.insert(0, sizes[1] * strides[0]);
  if (exchanged) {
    std::swap(sizes[1], sizes[2]);
    std::swap(strides[1], strides[2]);
  }
  copy_strided(sizes, weight.element_size(), {static_cast<const char*>(weight.const_data_ptr()), strides},
               {rows, contiguous_strides(sizes)});
  return rows;
}

template <class C>
void small_from_large(const Convolution& convolution, const Tensor& weight, const char* bias,
                      const ByteFeatureMap& large, const ByteFeatureMap& small) {
  const Temporary<char> copy = is_contiguous(weight)
                                   ? Temporary<char>()
                                   : copied_rows(convolution.context, weight, convolution.groups, false);
  const char* const rows =
      is_contiguous(weight) ? static_cast<const char*>(weight.const_data_ptr()) : copy.get();
  if (rows != nullptr) {
    map_product<C>(convolution, rows, bias, large, false, small);
  }
}

// See Note [Gaps] in nonfinite_weight.h.
template <const char* kName, class C>
void large_from_small(const Convolution& convolution, const Tensor& weight, const char* bias,
                      const Tensor& small, Tensor& large) {
  const int64_t spatial = weight.dim() - 2;
  const Temporary<char> rows = copied_rows(convolution.context, weight, convolution.groups, true);
  const auto compute = [&] {
    map_product<C>(convolution, rows, bias, feature_map_of(small, spatial), true,
                   feature_map_of(large, spatial));
  };
  if (rows == nullptr) {
    return;
  }
  compute();
  if (has_products_of_gaps(weight, large)) {
    make_finite(convolution.dtype, rows, weight.numel());
    compute();
    with_dtype<kName>(convolution.context, Floating{}, convolution.dtype, [&](auto type) {
      add_nonfinite_products<typename decltype(type)::type>(convolution.window, convolution.groups, weight,
                                                            small, large);
    });
  }
}

Convolution convolution_of(KernelRuntimeContext& context, const Tensor& weight,
                           const ConvolutionParameters& parameters) {
  return {context, weight.scalar_type(), convolution_window(weight, parameters), parameters.groups};
}

using Gradients = std::tuple<Tensor&, Tensor&, Tensor&>;

// Whether the outs that the mask asks for can be written by kernels that compute in the operands' dtype and
// go by places in memory.
bool are_gradients(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& input,
                   ArrayRef<bool> output_mask, const Gradients& outs) {
  OPSMITH_CHECK(context, is_floating(input.scalar_type()), NotSupported, false,
                "\"convolution_backward.out\" not implemented for '%s'", name_of(input.scalar_type()));
  const Tensor* const each[] = {&std::get<0>(outs), &std::get<1>(outs), &std::get<2>(outs)};
  for (size_t i = 0; i < 3; ++i) {
    if (output_mask[i] && (!same_dtype(context, input, *each[i]) || !are_contiguous(context, {each[i]}))) {
      return false;
    }
  }
  return are_contiguous(context, {&grad_output, &input});
}

constexpr char kForward[] = "convolution.out";
constexpr char kBackward[] = "convolution_backward.out";

}  // namespace

namespace native {

Tensor& convolution_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, IntList stride, IntList padding, IntList dilation,
                        bool transposed, IntList output_padding, int64_t groups, Tensor& out) {
  const ConvolutionParameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  Dims shape;
  if (!convolution_sizes(context, input, weight, parameters, shape)) {
    return out;
  }
  const Dims sizes(IntList(shape.value, static_cast<size_t>(shape.rank)));
  OPSMITH_CHECK(context, input.scalar_type() != ScalarType::Bool, NotSupported, out,
                "\"%s\" not implemented for 'Bool'", kForward);
  if (!same_dtype(context, input, out)) {
    return out;
  }
  if (!convolution_takes_bias(context, input, bias, shape, in_executorch())) {
    return out;
  }
  if (!resize(context, out, sizes) || !one_layout(context, {&out, &input})) {
    return out;
  }
  const int64_t spatial = input.dim() - 2;
  const Convolution convolution = convolution_of(context, weight, parameters);
  const char* added = bias.has_value() ? static_cast<const char*>(bias->const_data_ptr()) : nullptr;
  Temporary<char> converted;
  if (bias.has_value() && bias->scalar_type() != input.scalar_type()) {
    converted = temporary<char>(context, std::max<int64_t>(1, bias->numel() * input.element_size()));
    if (converted == nullptr || !convert_strided(context, sizes_of(*bias), bias->scalar_type(),
                                                 source_of(*bias), input.scalar_type(), {converted, {1}})) {
      return out;
    }
    added = converted;
  }
  with_wide_type<kForward>(context, input.scalar_type(), [&](auto type) {
    using C = typename decltype(type)::type;
    if (transposed) {
      large_from_small<kForward, C>(convolution, weight, added, input, out);
    } else {
      small_from_large<C>(convolution, weight, added, feature_map_of(input, spatial),
                          feature_map_of(out, spatial));
    }
  });
  return out;
}

// Gradients of input, weight and bias, as output_mask asks for. Contiguous outs, as the manifest says.
std::tuple<Tensor&, Tensor&, Tensor&> convolution_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& input, const Tensor& weight,
    std::optional<IntList> bias_sizes, IntList stride, IntList padding, IntList dilation, bool transposed,
    IntList output_padding, int64_t groups, ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1,
    Tensor& out2) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3) ||
      !are_gradients(context, grad_output, input, output_mask, results)) {
    return results;
  }
  if (is_empty_convolution(input)) {
    convolution_backward_of_nothing(context, input, weight, bias_sizes, output_mask, out0, out1, out2);
    return results;
  }
  const ConvolutionParameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  Dims shape;
  if (!convolution_sizes(context, input, weight, parameters, shape)) {
    return results;
  }
  const Dims sizes(IntList(shape.value, static_cast<size_t>(shape.rank)));
  if (!convolution_takes_gradient(context, input, grad_output, shape)) {
    return results;
  }
  if ((output_mask[0] && !resize(context, out0, sizes_of(input))) ||
      (output_mask[1] && !resize(context, out1, sizes_of(weight))) ||
      (output_mask[2] && !resize(context, out2, {sizes[1]}))) {
    return results;
  }
  const Convolution convolution = convolution_of(context, weight, parameters);
  const int64_t spatial = input.dim() - 2;
  const ByteFeatureMap given = feature_map_of(input, spatial);
  const ByteFeatureMap grad = feature_map_of(grad_output, spatial);
  with_wide_type<kBackward>(context, input.scalar_type(), [&](auto type) {
    using C = typename decltype(type)::type;
    if (output_mask[0] && transposed) {
      small_from_large<C>(convolution, weight, nullptr, grad, feature_map_of(out0, spatial));
    } else if (output_mask[0]) {
      large_from_small<kBackward, C>(convolution, weight, nullptr, grad_output, out0);
    }
    if (output_mask[1]) {
      weight_product<C>(convolution, transposed ? grad : given, transposed ? given : grad,
                        static_cast<char*>(out1.mutable_data_ptr()));
    }
    if (output_mask[2]) {
      channel_sums<C>(convolution, grad, static_cast<char*>(out2.mutable_data_ptr()));
    }
  });
  return results;
}

}  // namespace native
}  // namespace opsmith::portable
