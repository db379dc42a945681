// Batch and group norm, whose parameters are channels', with their gradients.
//
// Elements lie in planes, of which each is one channel's, or in rows, of which each column is one channel's:
// those of channels-last images, of tensors without pixels, and of planes of few. Other layouts are copied.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "../common/channels_innermost.h"
#include "../common/norm.h"
#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "../common/temporary.h"
#include "by_dtype.h"
#include "elements.h"
#include "folded_rows.h"
#include "moments.h"
#include "statistics_functions.h"
#include "threads.h"

namespace opsmith::optimized {
namespace {

using Results = std::tuple<Tensor&, Tensor&, Tensor&>;

template <class T>
using Standardize = void(const T* x, float center, float scale, float shift, T* z, int64_t n, bool streamed);
template <class T>
using StandardizeRows = void(const T* x, int64_t rows, int64_t columns, const float* centers,
                             const float* scales, const float* shifts, T* z, bool streamed);
template <class T>
using GradientSums = void(const T* g, const T* x, int64_t n, float center, float* sum, float* product);
template <class T>
using GradientSumsOfColumns = void(const T* g, const T* x, int64_t rows, int64_t stride, int64_t columns,
                                   const float* centers, float* sums, float* products);
template <class T>
using NormGradient = void(const T* g, const T* x, float center, float slope, float along, float shift, T* z,
                          int64_t n, bool streamed);
template <class T>
using NormGradientRows = void(const T* g, const T* x, int64_t rows, int64_t columns, const float* centers,
                              const float* slopes, const float* alongs, const float* shifts, T* z);

// The functions of simd/ that an operator needs.
struct Forward {
  ByDtype<MomentsEach> moments_each;
  ByDtype<MomentsOfColumns> moments_of_columns;
  ByDtype<Standardize> standardize;
  ByDtype<StandardizeRows> standardize_rows;
};
struct Backward {
  ByDtype<GradientSums> sums;
  ByDtype<GradientSumsOfColumns> sums_of_columns;
  ByDtype<NormGradient> gradient;
  ByDtype<NormGradientRows> gradient_rows;
};

template <const char* Operator>
Forward forward_functions() {
  Forward functions;
  OPSMITH_SET_FUNCTIONS(functions.moments_each, Operator, moments_each)
  OPSMITH_SET_FUNCTIONS(functions.moments_of_columns, Operator, moments_of_columns)
  OPSMITH_SET_FUNCTIONS(functions.standardize, Operator, standardize)
  OPSMITH_SET_FUNCTIONS(functions.standardize_rows, Operator, standardize_rows)
  return functions;
}
template <const char* Operator>
Backward backward_functions() {
  Backward functions;
  OPSMITH_SET_FUNCTIONS(functions.sums, Operator, gradient_sums)
  OPSMITH_SET_FUNCTIONS(functions.sums_of_columns, Operator, gradient_sums_of_columns)
  OPSMITH_SET_FUNCTIONS(functions.gradient, Operator, norm_gradient)
  OPSMITH_SET_FUNCTIONS(functions.gradient_rows, Operator, norm_gradient_rows)
  return functions;
}

// Of an element, beside adding it.
constexpr int64_t kCost = 2;
// Planes of fewer pixels are gone through as rows, in which several of them fill a vector.
constexpr int64_t kFewPixels = 16;
// Parts of a sample's rows whose sums are apart.
constexpr int64_t kRowParts = 16;
// Rows that are added up at once, in float32, and their columns.
constexpr int64_t kRows = 128;
constexpr int64_t kColumns = 256;
// Shorter runs are not streamed: each ends with a fence.
constexpr int64_t kStreamedRun = 4096;

// ---- where the elements lie

enum class Layout { kPlanes, kRows, kOther };

Layout layout_of(const Tensor& t) {
  return is_contiguous(t) ? Layout::kPlanes : has_channels_innermost(t) ? Layout::kRows : Layout::kOther;
}

Dims strides_in(Layout layout, const Dims& sizes) {
  Dims strides = contiguous_strides(sizes);
  if (layout == Layout::kRows) {
    int64_t stride = 1;
    for (int64_t i = 0; i < sizes.rank; ++i) {
      const int64_t d = i == 0 ? 1 : i == sizes.rank - 1 ? 0 : sizes.rank - i;
      strides[d] = stride;
      stride *= sizes[d];
    }
  }
  return strides;
}

template <class T>
void rearrange(const Dims& sizes, const T* from, const Dims& from_strides, T* to, const Dims& to_strides) {
  const auto all = strided(1, sizes, from_strides, to_strides);
  const auto line = all.innermost(), next = all.innermost(1);
  for_each_row_in_threads<2>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        to[at[1] + row * next.stride[1] + i * line.stride[1]] =
            from[at[0] + row * next.stride[0] + i * line.stride[0]];
      }
    }
  });
}

// The elements of an operand in the layout: its own, or a copy. Null with the call rejected.
template <class T>
class Operand {
 public:
  Operand(KernelRuntimeContext& context, const Tensor& tensor, Layout layout)
      : at_(static_cast<const T*>(tensor.const_data_ptr())) {
    if (layout_of(tensor) == layout || tensor.numel() == 0) {
      return;
    }
    const Dims sizes = sizes_of(tensor);
    copy_ = temporary<T>(context, tensor.numel());
    if (copy_.get() != nullptr) {
      rearrange(sizes, at_, strides_of(tensor), copy_.get(), strides_in(layout, sizes));
    }
    at_ = copy_.get();
    is_rejected_ = at_ == nullptr;
  }
  const T* at() const { return at_; }
  bool is_rejected() const { return is_rejected_; }

 private:
  const T* at_;
  Temporary<T> copy_;
  bool is_rejected_ = false;
};

// The elements of a result in the layout: its own, or others that finish() moves there. Null with the call
// rejected.
template <class T>
class Result {
 public:
  Result(KernelRuntimeContext& context, Tensor& tensor, Layout layout)
      : tensor_(tensor), layout_(layout), at_(static_cast<T*>(tensor.mutable_data_ptr())) {
    if (layout_of(tensor) != layout && tensor.numel() != 0) {
      copy_ = temporary<T>(context, tensor.numel());
      at_ = copy_.get();
      is_rejected_ = at_ == nullptr;
    }
  }
  T* at() const { return at_; }
  bool is_rejected() const { return is_rejected_; }
  void finish() const {
    if (copy_.get() != nullptr) {
      const Dims sizes = sizes_of(tensor_);
      rearrange<T>(sizes, at_, strides_in(layout_, sizes), static_cast<T*>(tensor_.mutable_data_ptr()),
                   strides_of(tensor_));
    }
  }

 private:
  Tensor& tensor_;
  Layout layout_;
  T* at_;
  Temporary<T> copy_;
  bool is_rejected_ = false;
};

// The layout in which a result is made: its own, where it has one of both.
Layout layout_for(const Tensor& result) {
  const Layout own = layout_of(result);
  return own == Layout::kOther ? Layout::kPlanes : own;
}

// [batch, channels, pixels], which lie in planes or, channels innermost, in rows.
struct Image {
  int64_t batch;
  int64_t channels;
  int64_t pixels;
  Layout layout;

  int64_t numel() const { return batch * channels * pixels; }
};

Image image_of(const Tensor& t, Layout layout) {
  const Dims sizes = sizes_of(t);
  return {sizes[0], sizes[1], sizes.product(2, sizes.rank), layout};
}

// The same as rows of columns that each belong to one channel, for `samples` whose statistics are apart.
class Grid {
 public:
  Grid(const Image& image, bool apart)
      : samples_(apart ? image.batch : 1),
        channels_(image.channels),
        inner_(image.layout == Layout::kRows ? 1 : image.pixels),
        columns_(channels_ * inner_),
        rows_(image.numel() / std::max<int64_t>(1, columns_ * samples_)) {
    folded_ = folded_rows(rows_, columns_, columns_);
    parts_ = std::clamp<int64_t>(rows_ * columns_ / kGrain, 1, kRowParts);
  }

  // Whether an image is to be gone through so.
  static bool is_for(const Image& image) {
    return image.layout == Layout::kRows || image.pixels < kFewPixels;
  }

  int64_t samples() const { return samples_; }
  int64_t channels() const { return channels_; }
  int64_t rows() const { return rows_; }
  int64_t parts() const { return parts_; }
  // f(k, channel) for the n columns from `column` on.
  template <class F>
  void for_channels(int64_t column, int64_t n, const F& f) const {
    int64_t channel = column / inner_ % channels_, within = column % inner_;
    for (int64_t k = 0; k < n; ++k) {
      f(k, channel);
      if (++within == inner_) {
        within = 0;
        channel = channel + 1 == channels_ ? 0 : channel + 1;
      }
    }
  }
  // Neighbours of one channel.
  int64_t inner() const { return inner_; }
  int64_t own_columns() const { return columns_; }
  // With the rows that are taken for one.
  int64_t columns() const { return columns_ * folded_; }
  int64_t sample_size() const { return rows_ * columns_; }

  // f(first, rows, columns) for the rows of a sample's part, whose elements begin at `first`: those that are
  // folded, and the rest.
  template <class F>
  void for_rows_of(int64_t sample, int64_t part, const F& f) const {
    const int64_t begin = rows_ * part / parts_, end = rows_ * (part + 1) / parts_;
    const int64_t whole = (end - begin) / folded_, first = sample * sample_size() + begin * columns_;
    f(first, whole, columns());
    if (whole * folded_ < end - begin) {
      f(first + whole * columns(), end - begin - whole * folded_, columns_);
    }
  }

  // f(sample, first, rows, columns) for all of them, in threads; the rows begin with the first column's.
  template <class F>
  void for_rows_in_threads(const F& f) const {
    const int64_t whole = rows_ / folded_;
    parallel(samples_ * whole, row_grain_size(columns() * kCost), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t sample = begin / whole, row = begin % whole;
        const int64_t count = std::min(end - begin, whole - row);
        f(sample, sample * sample_size() + row * columns(), count, columns());
        begin += count;
      }
    });
    if (const int64_t left = rows_ - whole * folded_; left > 0) {
      for (int64_t sample = 0; sample < samples_; ++sample) {
        f(sample, sample * sample_size() + whole * columns(), int64_t{1}, left * columns_);
      }
    }
  }

 private:
  int64_t samples_;
  int64_t channels_;
  int64_t inner_;
  int64_t columns_;
  int64_t rows_;
  int64_t folded_ = 1;
  int64_t parts_ = 1;
};

// Numbers of each column of each sample, for the functions of rows.
class ColumnNumbers {
 public:
  static constexpr size_t kNumbers = 4;
  using OfChannel = std::array<float, kNumbers>;

  ColumnNumbers(KernelRuntimeContext& context, const Grid& grid)
      : columns_(grid.columns()),
        numbers_(temporary<float>(context, grid.samples() * static_cast<int64_t>(kNumbers) * columns_)) {}

  bool has_memory() const { return numbers_.get() != nullptr; }
  float* of(int64_t sample, int64_t which) const {
    return numbers_.get() + (sample * static_cast<int64_t>(kNumbers) + which) * columns_;
  }
  // From of_channel(sample, channel), the first `count` of its numbers.
  template <class F>
  void fill(const Grid& grid, int64_t count, const F& of_channel) const {
    const int64_t own = grid.own_columns();
    for (int64_t sample = 0; own > 0 && sample < grid.samples(); ++sample) {
      for (int64_t channel = 0, column = 0; channel < grid.channels(); ++channel, column += grid.inner()) {
        const OfChannel numbers = of_channel(sample, channel);
        for (int64_t which = 0; which < count; ++which) {
          std::fill_n(of(sample, which) + column, grid.inner(), numbers[static_cast<size_t>(which)]);
        }
      }
      for (int64_t which = 0; which < count; ++which) {
        for (int64_t column = own; column < columns_; column += own) {
          std::copy_n(of(sample, which), own, of(sample, which) + column);
        }
      }
    }
  }

 private:
  int64_t columns_;
  Temporary<float> numbers_;
};

// ---- forward

// A linear map of x: (x - center)·scale + shift.
struct Line {
  float center;
  float scale;
  float shift;
};

// line_of(sample, channel) says what the elements of a channel become.
template <class T, class F>
bool standardize(KernelRuntimeContext& context, const Image& image, const Grid& grid, const T* x, T* z,
                 bool streamed, const Forward& functions, const F& line_of) {
  if (!Grid::is_for(image)) {
    auto* const function = functions.standardize.of(T{});
    const int64_t n = image.pixels;
    parallel(image.batch * image.channels, row_grain_size(n * kCost), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const Line line = line_of(plane / image.channels, plane % image.channels);
        function(x + plane * n, line.center, line.scale, line.shift, z + plane * n, n,
                 streamed && n >= kStreamedRun);
      }
    });
    return true;
  }
  const ColumnNumbers numbers(context, grid);
  if (!numbers.has_memory()) {
    return false;
  }
  numbers.fill(grid, 3, [&](int64_t sample, int64_t channel) {
    const Line line = line_of(sample, channel);
    return ColumnNumbers::OfChannel{line.center, line.scale, line.shift, 0.0f};
  });
  auto* const function = functions.standardize_rows.of(T{});
  grid.for_rows_in_threads([&](int64_t sample, int64_t first, int64_t rows, int64_t columns) {
    function(x + first, rows, columns, numbers.of(sample, 0), numbers.of(sample, 1), numbers.of(sample, 2),
             z + first, streamed);
  });
  return true;
}

// The moments of each channel of each sample of the grid.
template <class T>
bool take_moments_of_rows(KernelRuntimeContext& context, const Grid& grid, const T* x,
                          const Forward& functions, Moments* moments) {
  const int64_t parts = grid.parts(), channels = grid.channels();
  // One part's go where they belong, those of several to memory of their own.
  const auto apart = temporary<Moments>(context, parts == 1 ? 1 : grid.samples() * parts * channels);
  if (apart.get() == nullptr) {
    return false;
  }
  Moments* const all_parts = parts == 1 ? moments : apart.get();
  auto* const function = functions.moments_of_columns.of(T{});
  parallel(
      grid.samples() * parts, row_grain_size(grid.sample_size() / parts * kCost),
      [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          Moments* const own = all_parts + task * channels;
          std::fill_n(own, channels, Moments());
          grid.for_rows_of(task / parts, task % parts, [&](int64_t first, int64_t rows, int64_t columns) {
            take_moments_of_columns(
                x + first, rows, columns, columns, function,
                [&](int64_t column, int64_t n, double count, const float* means, const float* squares) {
                  grid.for_channels(column, n, [&](int64_t k, int64_t channel) {
                    own[channel].add(count, static_cast<double>(means[k]), static_cast<double>(squares[k]));
                  });
                });
          });
        }
      });
  for (int64_t i = 0; parts > 1 && i < grid.samples() * channels; ++i) {
    moments[i] = Moments();
    for (int64_t part = 0; part < parts; ++part) {
      moments[i].add(all_parts[(i / channels * parts + part) * channels + i % channels]);
    }
  }
  return true;
}

// Those of the channels of a batch, in planes: threads share the channels.
template <class T>
void take_moments_of_planes(const Image& image, const T* x, const Forward& functions, Moments* moments) {
  auto* const function = functions.moments_each.of(T{});
  parallel(image.channels, row_grain_size(image.batch * image.pixels * kCost),
           [&](int64_t begin, int64_t end) {
             std::fill(moments + begin, moments + end, Moments());
             for (int64_t sample = 0; sample < image.batch; ++sample) {
               add_moments_of_runs(x + (sample * image.channels + begin) * image.pixels, end - begin,
                                   image.pixels, image.pixels, function, moments + begin);
             }
           });
}

// Moves the running statistics of a channel towards the batch's.
void move_statistics(const BatchNorm& norm, int64_t channel, const Moments& moments) {
  const auto move = [&](OptionalTensor running, double value) {
    if (running.has_value()) {
      const double old = static_cast<double>(element_at(*running, channel));
      put_element(static_cast<float>(norm.momentum * value + (1 - norm.momentum) * old), *running, channel);
    }
  };
  move(norm.running_mean, moments.mean);
  move(norm.running_var, moments.squares / (moments.count - 1));
}

template <class T>
void batch_norm(KernelRuntimeContext& context, const Tensor& input, const BatchNorm& norm,
                const Forward& functions, Tensor& out, Tensor* save_mean, Tensor* save_invstd) {
  const Layout layout = layout_for(out);
  const Image image = image_of(input, layout);
  const Grid grid(image, /*apart=*/false);
  const Operand<T> x(context, input, layout);
  const Result<T> z(context, out, layout);
  const auto lines = temporary<Line>(context, image.channels);
  const auto moments = temporary<Moments>(context, norm.training ? image.channels : 1);
  if (x.is_rejected() || z.is_rejected() || lines.get() == nullptr || moments.get() == nullptr) {
    return;
  }
  if (norm.training) {
    if (!Grid::is_for(image)) {
      take_moments_of_planes(image, x.at(), functions, moments.get());
    } else if (!take_moments_of_rows(context, grid, x.at(), functions, moments.get())) {
      return;
    }
  }
  for (int64_t channel = 0; channel < image.channels; ++channel) {
    double mean, variance;
    if (norm.training) {
      mean = moments[channel].mean;
      variance = moments[channel].squares / moments[channel].count;
      move_statistics(norm, channel, moments[channel]);
    } else {
      mean = static_cast<double>(element_at(*norm.running_mean, channel));
      variance = static_cast<double>(element_at(*norm.running_var, channel));
    }
    const float rate = static_cast<float>(1 / std::sqrt(variance + norm.eps));
    if (save_mean != nullptr) {
      put_element(static_cast<float>(mean), *save_mean, channel);
      put_element(rate, *save_invstd, channel);
    }
    lines[channel] = {static_cast<float>(mean), rate * element_at(norm.weight, channel, 1.0f),
                      element_at(norm.bias, channel, 0.0f)};
  }
  if (standardize(context, image, grid, x.at(), z.at(), is_streamed(out, {&input}), functions,
                  [&](int64_t, int64_t channel) { return lines[channel]; })) {
    z.finish();
  }
}

// The arguments of group norm, beside the operand.
struct GroupNorm {
  const OptionalTensor& weight;
  const OptionalTensor& bias;
  int64_t groups;
  double eps;

  float rate(const Moments& moments) const {
    return static_cast<float>(1 / std::sqrt(std::max(moments.squares / moments.count, 0.0) + eps));
  }
  // The linear map of a channel's elements, by its group's mean and rate.
  Line line(float mean, float rate, int64_t channel) const {
    return {mean, rate * element_at(weight, channel, 1.0f), element_at(bias, channel, 0.0f)};
  }
};

// Of planes: a group's lie one after the other, and stay in the caches until they are written.
template <class T>
void group_norm_of_planes(const Image& image, const GroupNorm& norm, const T* x, T* z, bool streamed,
                          const Forward& functions, Moments* moments) {
  auto* const moments_each = functions.moments_each.of(T{});
  auto* const function = functions.standardize.of(T{});
  auto* const of_rows = functions.standardize_rows.of(T{});
  const int64_t own = image.channels / norm.groups, n = image.pixels;
  parallel(image.batch * norm.groups, row_grain_size(own * n * 2 * kCost), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * own * n, first_channel = group % norm.groups * own;
      moments[group] = Moments();
      add_moments_of_runs(x + first, 1, 0, own * n, moments_each, moments + group);
      const float mean = static_cast<float>(moments[group].mean), rate = norm.rate(moments[group]);
      if (n >= kFewPixels) {
        for (int64_t k = 0; k < own; ++k) {
          const Line line = norm.line(mean, rate, first_channel + k);
          function(x + first + k * n, line.center, line.scale, line.shift, z + first + k * n, n,
                   streamed && n >= kStreamedRun);
        }
        continue;
      }
      float centers[kColumns], scales[kColumns], shifts[kColumns];
      for (int64_t i = 0; i < own * n; i += kColumns) {
        const int64_t together = std::min(kColumns, own * n - i);
        for (int64_t k = 0; k < together; ++k) {
          const Line line = norm.line(mean, rate, first_channel + (i + k) / n);
          centers[k] = line.center;
          scales[k] = line.scale;
          shifts[k] = line.shift;
        }
        of_rows(x + first + i, 1, together, centers, scales, shifts, z + first + i, false);
      }
    }
  });
}

template <class T>
void group_norm(KernelRuntimeContext& context, const Tensor& input, const Image& image, const GroupNorm& norm,
                const Forward& functions, Tensor& out, Tensor& mean, Tensor& rstd) {
  const Grid grid(image, /*apart=*/true);
  const Operand<T> x(context, input, image.layout);
  const Result<T> z(context, out, image.layout);
  const int64_t own = image.channels / norm.groups, groups = image.batch * norm.groups;
  const auto moments = temporary<Moments>(context, groups);
  const bool by_rows = image.layout == Layout::kRows;
  const auto of_channels = temporary<Moments>(context, by_rows ? image.batch * image.channels : 1);
  if (x.is_rejected() || z.is_rejected() || moments.get() == nullptr || of_channels.get() == nullptr) {
    return;
  }
  const bool streamed = is_streamed(out, {&input});
  if (!by_rows) {
    group_norm_of_planes(image, norm, x.at(), z.at(), streamed, functions, moments.get());
  } else if (take_moments_of_rows(context, grid, x.at(), functions, of_channels.get())) {
    for (int64_t group = 0; group < groups; ++group) {
      moments[group] = Moments();
      for (int64_t k = 0; k < own; ++k) {
        moments[group].add(of_channels[group * own + k]);
      }
    }
  } else {
    return;
  }
  for (int64_t group = 0; group < groups; ++group) {
    const Moments& each = moments[group];
    // Of infinities both are NaN, as PyTorch's.
    const bool is_nan = std::isnan(each.squares);
    put_element(static_cast<float>(is_nan ? each.squares : each.mean), mean, group);
    put_element(is_nan ? static_cast<float>(each.squares) : norm.rate(each), rstd, group);
  }
  if (!by_rows || standardize(context, image, grid, x.at(), z.at(), streamed, functions,
                              [&](int64_t sample, int64_t channel) {
                                const Moments& each = moments[sample * norm.groups + channel / own];
                                return norm.line(static_cast<float>(each.mean), norm.rate(each), channel);
                              })) {
    z.finish();
  }
}

// ---- backward

// Over the elements of a channel: of the result's gradient g, and of g·(x - center).
struct Sums {
  double grad = 0;
  double product = 0;
};

// A linear map of g and x: g·slope + (x - center)·along + shift.
struct GradientLine {
  float center;
  float slope;
  float along;
  float shift;
};

// Those of each channel, and of each sample where those are `apart`; center_of(sample, channel).
template <class T, class F>
bool take_sums(KernelRuntimeContext& context, const Image& image, const Grid& grid, const T* g, const T* x,
               const Backward& functions, const F& center_of, Sums* sums) {
  const int64_t channels = image.channels, samples = grid.samples();
  if (!Grid::is_for(image)) {
    constexpr int64_t kRun = 8192;
    auto* const function = functions.sums.of(T{});
    const int64_t n = image.pixels;
    parallel(channels, row_grain_size(image.batch * n * kCost), [&](int64_t begin, int64_t end) {
      for (int64_t sample = 0; sample < image.batch; ++sample) {
        for (int64_t channel = begin; channel < end; ++channel) {
          const int64_t own = samples == 1 ? 0 : sample;
          Sums& to = sums[own * channels + channel];
          if (sample == 0 || samples > 1) {
            to = Sums();
          }
          const int64_t first = (sample * channels + channel) * n;
          for (int64_t i = 0; i < n; i += kRun) {
            float sum, product;
            function(g + first + i, x + first + i, std::min(kRun, n - i), center_of(own, channel), &sum,
                     &product);
            to.grad += static_cast<double>(sum);
            to.product += static_cast<double>(product);
          }
        }
      }
    });
    return true;
  }
  const int64_t parts = grid.parts();
  const ColumnNumbers numbers(context, grid);
  const auto apart = temporary<Sums>(context, parts == 1 ? 1 : samples * parts * channels);
  if (!numbers.has_memory() || apart.get() == nullptr) {
    return false;
  }
  Sums* const all_parts = parts == 1 ? sums : apart.get();
  numbers.fill(grid, 1, [&](int64_t sample, int64_t channel) {
    return ColumnNumbers::OfChannel{center_of(sample, channel), 0.0f, 0.0f, 0.0f};
  });
  auto* const function = functions.sums_of_columns.of(T{});
  parallel(
      samples * parts, row_grain_size(grid.sample_size() / parts * kCost), [&](int64_t begin, int64_t end) {
        float grads[kColumns], products[kColumns];
        for (int64_t task = begin; task < end; ++task) {
          Sums* const own = all_parts + task * channels;
          std::fill_n(own, channels, Sums());
          const float* const centers = numbers.of(task / parts, 0);
          grid.for_rows_of(task / parts, task % parts, [&](int64_t first, int64_t rows, int64_t columns) {
            for (int64_t row = 0; row < rows; row += kRows) {
              for (int64_t column = 0; column < columns; column += kColumns) {
                const int64_t at = first + row * columns + column;
                const int64_t together = std::min(kColumns, columns - column);
                function(g + at, x + at, std::min(kRows, rows - row), columns, together, centers + column,
                         grads, products);
                grid.for_channels(column, together, [&](int64_t k, int64_t channel) {
                  own[channel].grad += static_cast<double>(grads[k]);
                  own[channel].product += static_cast<double>(products[k]);
                });
              }
            }
          });
        }
      });
  for (int64_t i = 0; parts > 1 && i < samples * channels; ++i) {
    sums[i] = Sums();
    for (int64_t part = 0; part < parts; ++part) {
      const Sums& each = all_parts[(i / channels * parts + part) * channels + i % channels];
      sums[i].grad += each.grad;
      sums[i].product += each.product;
    }
  }
  return true;
}

// line_of(sample, channel) says what the gradients of a channel are.
template <class T, class F>
bool differentiate(KernelRuntimeContext& context, const Image& image, const Grid& grid, const T* g,
                   const T* x, T* z, bool streamed, const Backward& functions, const F& line_of) {
  if (!Grid::is_for(image)) {
    auto* const function = functions.gradient.of(T{});
    const int64_t n = image.pixels;
    parallel(image.batch * image.channels, row_grain_size(n * kCost), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const GradientLine line = line_of(plane / image.channels, plane % image.channels);
        function(g + plane * n, x + plane * n, line.center, line.slope, line.along, line.shift, z + plane * n,
                 n, streamed && n >= kStreamedRun);
      }
    });
    return true;
  }
  const ColumnNumbers numbers(context, grid);
  if (!numbers.has_memory()) {
    return false;
  }
  numbers.fill(grid, 4, [&](int64_t sample, int64_t channel) {
    const GradientLine line = line_of(sample, channel);
    return ColumnNumbers::OfChannel{line.center, line.slope, line.along, line.shift};
  });
  auto* const function = functions.gradient_rows.of(T{});
  grid.for_rows_in_threads([&](int64_t sample, int64_t first, int64_t rows, int64_t columns) {
    function(g + first, x + first, rows, columns, numbers.of(sample, 0), numbers.of(sample, 1),
             numbers.of(sample, 2), numbers.of(sample, 3), z + first);
  });
  return true;
}

struct BatchNormGradient {
  const OptionalTensor& weight;
  // Of the batch, mean and 1/√(variance + ε), or those that were given, mean and variance.
  const Tensor& mean;
  const Tensor& spread;
  bool training;
  double eps;

  double rate(int64_t channel) const {
    const double own = static_cast<double>(element_at(spread, channel));
    return training ? own : 1 / std::sqrt(own + eps);
  }
};

template <class T>
void batch_norm_backward(KernelRuntimeContext& context, const Tensor& grad, const Tensor& input,
                         const BatchNormGradient& norm, const Forward& forward, const Backward& backward,
                         const NormGradients& gradients) {
  const Layout layout = layout_for(gradients.input == nullptr ? input : *gradients.input);
  const Image image = image_of(input, layout);
  const Grid grid(image, /*apart=*/false);
  const Operand<T> g(context, grad, layout), x(context, input, layout);
  const auto sums = temporary<Sums>(context, image.channels);
  const auto lines = temporary<GradientLine>(context, image.channels);
  if (g.is_rejected() || x.is_rejected() || sums.get() == nullptr || lines.get() == nullptr) {
    return;
  }
  const bool sums_up = norm.training || gradients.weight != nullptr || gradients.bias != nullptr;
  if (sums_up && !take_sums(
                     context, image, grid, g.at(), x.at(), backward,
                     [&](int64_t, int64_t channel) { return element_at(norm.mean, channel); }, sums.get())) {
    return;
  }
  const double count = static_cast<double>(image.batch * image.pixels);
  for (int64_t channel = 0; channel < image.channels; ++channel) {
    const double rate = norm.rate(channel);
    if (gradients.weight != nullptr) {
      put_element(static_cast<float>(sums[channel].product * rate), *gradients.weight, channel);
    }
    if (gradients.bias != nullptr) {
      put_element(static_cast<float>(sums[channel].grad), *gradients.bias, channel);
    }
    const double slope = rate * static_cast<double>(element_at(norm.weight, channel, 1.0f));
    lines[channel] = {element_at(norm.mean, channel), static_cast<float>(slope), 0, 0};
    if (norm.training) {
      lines[channel].along = static_cast<float>(-slope * rate * rate * sums[channel].product / count);
      lines[channel].shift = static_cast<float>(-slope * sums[channel].grad / count);
    }
  }
  if (gradients.input == nullptr) {
    return;
  }
  const Result<T> z(context, *gradients.input, layout);
  if (z.is_rejected()) {
    return;
  }
  const bool streamed = is_streamed(*gradients.input, {&grad, &input});
  const auto line_of = [&](int64_t, int64_t channel) { return lines[channel]; };
  const auto scaled = [&](int64_t, int64_t channel) { return Line{0, lines[channel].slope, 0}; };
  if (norm.training ? differentiate(context, image, grid, g.at(), x.at(), z.at(), streamed, backward, line_of)
                    : standardize(context, image, grid, g.at(), z.at(), streamed, forward, scaled)) {
    z.finish();
  }
}

template <class T>
void group_norm_backward(KernelRuntimeContext& context, const Tensor& grad, const Tensor& input,
                         const Image& image, const Tensor& mean, const Tensor& rstd,
                         const OptionalTensor& weight, int64_t groups, const Backward& functions,
                         const NormGradients& gradients) {
  const Grid grid(image, /*apart=*/true);
  const Operand<T> g(context, grad, image.layout), x(context, input, image.layout);
  const int64_t channels = image.channels, own = channels / groups;
  const auto sums = temporary<Sums>(context, image.batch * channels);
  const auto lines = temporary<GradientLine>(context, image.batch * groups);
  if (g.is_rejected() || x.is_rejected() || sums.get() == nullptr || lines.get() == nullptr ||
      !take_sums(
          context, image, grid, g.at(), x.at(), functions,
          [&](int64_t sample, int64_t channel) { return element_at(mean, sample * groups + channel / own); },
          sums.get())) {
    return;
  }
  for (int64_t channel = 0; channel < channels; ++channel) {
    Sums all;
    for (int64_t sample = 0; sample < image.batch; ++sample) {
      const Sums& each = sums[sample * channels + channel];
      all.product += each.product * static_cast<double>(element_at(rstd, sample * groups + channel / own));
      all.grad += each.grad;
    }
    if (gradients.weight != nullptr) {
      put_element(static_cast<float>(all.product), *gradients.weight, channel);
    }
    if (gradients.bias != nullptr) {
      put_element(static_cast<float>(all.grad), *gradients.bias, channel);
    }
  }
  if (gradients.input == nullptr) {
    return;
  }
  const double count = static_cast<double>(own * image.pixels);
  for (int64_t group = 0; group < image.batch * groups; ++group) {
    Sums all;
    for (int64_t k = 0; k < own; ++k) {
      const double factor = static_cast<double>(element_at(weight, group % groups * own + k, 1.0f));
      all.product += sums[group * own + k].product * factor;
      all.grad += sums[group * own + k].grad * factor;
    }
    const double rate = static_cast<double>(element_at(rstd, group));
    lines[group] = {element_at(mean, group), static_cast<float>(rate),
                    static_cast<float>(-rate * rate * rate * all.product / count),
                    static_cast<float>(-rate * all.grad / count)};
  }
  const Result<T> z(context, *gradients.input, image.layout);
  if (!z.is_rejected() && differentiate(context, image, grid, g.at(), x.at(), z.at(),
                                        is_streamed(*gradients.input, {&grad, &input}), functions,
                                        [&](int64_t sample, int64_t channel) {
                                          GradientLine line = lines[sample * groups + channel / own];
                                          line.slope *= element_at(weight, channel, 1.0f);
                                          return line;
                                        })) {
    z.finish();
  }
}

// ---- operators

constexpr char kBatchNormAnyStatistics[] = "native_batch_norm.out";
constexpr char kBatchNormBackward[] = "native_batch_norm_backward.out";
constexpr char kGroupNorm[] = "native_group_norm.out";
constexpr char kGroupNormBackward[] = "native_group_norm_backward.out";

// Whether the functions are for the input, and a result has its dtype, others that or Float.
template <template <class> class Signature>
bool calculates(KernelRuntimeContext& context, const char* name, const ByDtype<Signature>& functions,
                const Tensor& input, const Tensor* result, std::initializer_list<const Tensor*> others) {
  return (functions.has(input.scalar_type()) && have_dtypes_of(input, result, others)) ||
         reject(context, Error::NotSupported,
                "%s takes " OPSMITH_TAKEN ", with parameters and statistics of the same dtype or float32",
                name);
}

template <const char* Operator>
Results batch_norm_of(KernelRuntimeContext& context, const Tensor& input, const BatchNorm& norm, Tensor& out,
                      Tensor& save_mean, Tensor& save_invstd) {
  const Forward functions = forward_functions<Operator>();
  if (calculates(context, "batch_norm", functions.standardize, input, &out, {&save_mean, &save_invstd}) &&
      prepare_batch_norm(context, input, norm, out, save_mean, save_invstd) &&
      one_layout(context, {&out, &input})) {
    const bool saves = saves_statistics(norm, input, save_mean);
    with_element(input.scalar_type(), [&](auto element) {
      batch_norm<decltype(element)>(context, input, norm, functions, out, saves ? &save_mean : nullptr,
                                    saves ? &save_invstd : nullptr);
    });
  }
  return {out, save_mean, save_invstd};
}

// The image of group norm's arguments: as it lies where its dimensions are theirs, else one of planes.
Image group_norm_image(const Tensor& input, const Tensor& like, int64_t batch, int64_t channels,
                       int64_t pixels) {
  const bool has_channels = input.dim() >= 2 && input.sizes()[0] == batch && input.sizes()[1] == channels;
  return {batch, channels, pixels, has_channels ? layout_for(like) : Layout::kPlanes};
}

}  // namespace

namespace native {

OPSMITH_BATCH_NORMS

Results native_batch_norm_out(KernelRuntimeContext& context, const Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias,
                              const OptionalTensor& running_mean, const OptionalTensor& running_var,
                              bool training, double momentum, double eps, Tensor& out, Tensor& save_mean,
                              Tensor& save_invstd) {
  // The schema does not say that they are changed, and a program may have them in memory for reading.
  OPSMITH_CHECK(context,
                !in_executorch() || !training || !(running_mean.has_value() || running_var.has_value()),
                NotSupported, Results(out, save_mean, save_invstd),
                "native_batch_norm does not update running statistics in ExecuTorch; "
                "_native_batch_norm_legit does");
  return batch_norm_of<kBatchNormAnyStatistics>(
      context, input, {weight, bias, running_mean, running_var, training, momentum, eps}, out, save_mean,
      save_invstd);
}

Results native_batch_norm_backward_out(KernelRuntimeContext& context, const Tensor& grad_out,
                                       const Tensor& input, const OptionalTensor& weight,
                                       const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                       const OptionalTensor& save_mean, const OptionalTensor& save_invstd,
                                       bool train, double eps, ArrayRef<bool> output_mask, Tensor& out0,
                                       Tensor& out1, Tensor& out2) {
  constexpr char kName[] = "batch_norm_backward";
  Results results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3)) {
    return results;
  }
  const Forward forward = forward_functions<kBatchNormBackward>();
  const Backward backward = backward_functions<kBatchNormBackward>();
  const OptionalTensor& mean = train ? save_mean : running_mean;
  const OptionalTensor& spread = train ? save_invstd : running_var;
  const NormGradients gradients = asked_for(output_mask, out0, out1, out2);
  OPSMITH_CHECK(context, input.dim() >= 2 && mean.has_value() && spread.has_value(), InvalidArgument, results,
                "batch_norm_backward: the %s statistics are missing, or the input has no channels",
                train ? "saved" : "running");
  OPSMITH_CHECK(context,
                grad_out.scalar_type() == input.scalar_type() && sizes_of(grad_out) == sizes_of(input),
                InvalidArgument, results, "batch_norm_backward: grad_out does not belong to input");
  const Dims channels{input.size(1)};
  if (calculates(context, kName, backward.gradient, input, gradients.input,
                 {gradients.weight, gradients.bias}) &&
      is_parameter(context, kName, weight, input, channels) &&
      is_parameter(context, kName, mean, input, channels) &&
      is_parameter(context, kName, spread, input, channels) && resize(context, gradients, input, channels)) {
    with_element(input.scalar_type(), [&](auto element) {
      batch_norm_backward<decltype(element)>(context, grad_out, input, {weight, *mean, *spread, train, eps},
                                             forward, backward, gradients);
    });
  }
  return results;
}

Results native_group_norm_out(KernelRuntimeContext& context, const Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias, int64_t N, int64_t C,
                              int64_t HxW, int64_t group, double eps, Tensor& out0, Tensor& out1,
                              Tensor& out2) {
  const Forward functions = forward_functions<kGroupNorm>();
  if (calculates(context, "native_group_norm", functions.standardize, input, &out0, {&out1, &out2}) &&
      prepare_group_norm(context, input, weight, bias, N, C, HxW, group, out0, out1, out2) &&
      one_layout(context, {&out0, &input})) {
    with_element(input.scalar_type(), [&](auto element) {
      group_norm<decltype(element)>(context, input, group_norm_image(input, out0, N, C, HxW),
                                    {weight, bias, group, eps}, functions, out0, out1, out2);
    });
  }
  return {out0, out1, out2};
}

Results native_group_norm_backward_out(KernelRuntimeContext& context, const Tensor& grad_out,
                                       const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                       const OptionalTensor& weight, int64_t N, int64_t C, int64_t HxW,
                                       int64_t group, ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1,
                                       Tensor& out2) {
  Results results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3)) {
    return results;
  }
  const Backward functions = backward_functions<kGroupNormBackward>();
  const NormGradients gradients = asked_for(output_mask, out0, out1, out2);
  if (calculates(context, "native_group_norm_backward", functions.gradient, input, gradients.input,
                 {&mean, &rstd, gradients.weight, gradients.bias}) &&
      prepare_group_norm_backward(context, grad_out, input, mean, rstd, weight, N, C, HxW, group,
                                  gradients)) {
    const bool alike = sizes_of(grad_out) == sizes_of(input);
    const Image image = alike ? group_norm_image(input, output_mask[0] ? out0 : input, N, C, HxW)
                              : Image{N, C, HxW, Layout::kPlanes};
    with_element(input.scalar_type(), [&](auto element) {
      group_norm_backward<decltype(element)>(context, grad_out, input, image, mean, rstd, weight, group,
                                             functions, gradients);
    });
  }
  return results;
}

}  // namespace native
}  // namespace opsmith::optimized
