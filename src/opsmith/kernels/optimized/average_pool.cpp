// Averages over windows of planes: avg_pool2d and _adaptive_avg_pool2d.
//
// Where channels are innermost, all channels of a result's pixel are averaged at once. In planes the rows of
// a window are added to one row first, and then that row's elements.
#include <algorithm>
#include <optional>

#include "../common/pool_shape.h"
#include "../common/selection.h"
#include "../common/tasks.h"
#include "by_dtype.h"
#include "elements.h"
#include "threads.h"
#include "float_functions.h"
#include "statistics_functions.h"

namespace opsmith::optimized {
namespace {

// result[i] is the sum of elements[k][i], divided.
template <class T>
using Averages = void(const T* const* elements, int64_t number, int64_t count, float divisor, T* result);
template <class T>
using RowSums = void(const T* const* rows, int64_t number, int64_t count, float* sums);
template <class T>
using Windows = void(const float* row, int64_t width, int64_t step, int64_t count, float divisor, T* result);
template <class T>
using SumEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, double* totals);
template <class T>
using SumRows = void(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals);

struct Functions {
  ByDtype<Averages> averages;
  ByDtype<RowSums> row_sums;
  ByDtype<Windows> windows;
  ByDtype<SumEach> sum_each;
  ByDtype<SumRows> sum_rows;
};

template <const char* Operator>
Functions functions_of() {
  Functions functions;
  OPSMITH_SET_FUNCTIONS(functions.averages, Operator, averages)
  OPSMITH_SET_FUNCTIONS(functions.row_sums, Operator, row_sums)
  OPSMITH_SET_FUNCTIONS(functions.windows, Operator, window_averages)
  OPSMITH_SET_FUNCTIONS(functions.sum_each, Operator, sum_each)
  OPSMITH_SET_FUNCTIONS(functions.sum_rows, Operator, sum_rows)
  return functions;
}

// The elements that a result's index takes from one dimension, and their number with those of the padding.
struct Span {
  int64_t begin;
  int64_t end;
  int64_t padded;

  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

// Of one dimension: windows of a fixed size and distance, or those that divide the plane.
struct Axis {
  int64_t in;
  int64_t out;
  bool is_adaptive;
  int64_t kernel;
  int64_t stride;
  int64_t padding;

  Span span(int64_t i) const {
    if (is_adaptive) {
      const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
      return {begin, end, end - begin};
    }
    const int64_t begin = i * stride - padding, end = std::min(begin + kernel, in + padding);
    return {std::max<int64_t>(0, begin), std::min(end, in), end - begin};
  }
  // The indices whose windows lie within the plane, if windows are equally far apart.
  std::pair<int64_t, int64_t> inside() const {
    if (is_adaptive) {
      return {0, 0};
    }
    const int64_t begin = std::min(out, ceil_divided(padding, stride));
    const int64_t last = in - kernel + padding;
    return {begin, last < 0 ? begin : std::clamp(last / stride + 1, begin, out)};
  }
  int64_t most() const { return is_adaptive ? in / out + 2 : kernel; }
};

struct Divisor {
  bool counts_padding;
  std::optional<int64_t> given;

  float of(const Span& y, const Span& x) const {
    const int64_t own = counts_padding ? y.padded * x.padded : y.size() * x.size();
    return static_cast<float>(given.value_or(own));
  }
};

template <class T>
struct Pool {
  FeatureMap<const T> source;
  FeatureMap<T> result;
  Axis y;
  Axis x;
  Divisor divisor;
  const Functions& functions;

  bool is_by_channels() const { return source.channel_stride == 1 && result.channel_stride == 1; }
  bool is_by_rows() const { return source.stride[2] == 1 && result.stride[2] == 1; }
  // One result for each plane, of all its elements without gaps.
  bool is_of_planes() const {
    const Span own_y = y.span(0), own_x = x.span(0);
    return y.out == 1 && x.out == 1 && own_y.size() == y.in && own_x.size() == x.in;
  }
};

// Rows of channels-last maps.
template <class T>
bool pool_channels(KernelRuntimeContext& context, const Pool<T>& pool) {
  const int64_t most = pool.y.most() * pool.x.most();
  auto* const averages = pool.functions.averages.of(T{});
  // An element's address takes two floats' memory.
  return run_tasks<float>(
      context, pool.result.batch * pool.y.out, row_grain_size(pool.x.out * pool.result.channels * most),
      2 * most, [&](int64_t task, float* memory) {
        const T** const elements = reinterpret_cast<const T**>(memory);
        const int64_t sample = task / pool.y.out, row = task % pool.y.out;
        const Span y = pool.y.span(row);
        const T* const plane = pool.source.data + sample * pool.source.batch_stride;
        T* to = pool.result.data + sample * pool.result.batch_stride + row * pool.result.stride[1];
        for (int64_t column = 0; column < pool.x.out; ++column, to += pool.result.stride[2]) {
          const Span x = pool.x.span(column);
          int64_t number = 0;
          for (int64_t i = y.begin; i < y.end; ++i) {
            for (int64_t j = x.begin; j < x.end; ++j) {
              elements[number++] = plane + i * pool.source.stride[1] + j * pool.source.stride[2];
            }
          }
          averages(elements, number, pool.result.channels, number == 0 ? 1.0f : pool.divisor.of(y, x), to);
        }
      });
}

// Planes whose rows have no gaps.
template <class T>
bool pool_rows(KernelRuntimeContext& context, const Pool<T>& pool) {
  const int64_t width = pool.x.in, most = pool.y.most();
  auto* const row_sums = pool.functions.row_sums.of(T{});
  auto* const windows = pool.functions.windows.of(T{});
  const auto inside = pool.x.inside();
  const auto spans = temporary<Span>(context, pool.x.out);
  if (spans == nullptr) {
    return false;
  }
  for (int64_t column = 0; column < pool.x.out; ++column) {
    spans[column] = pool.x.span(column);
  }
  // The rows' addresses, their sums, and the averages of some of those.
  const int64_t sums_at = ceil_divided(2 * most, 16) * 16, averages_at = sums_at + width;
  const auto pool_row = [&](int64_t task, float* memory) {
    const T** const rows = reinterpret_cast<const T**>(memory);
    float *const sums = memory + sums_at, *const averages = memory + averages_at;
    const int64_t plane = task / pool.y.out, row = task % pool.y.out;
    const Span y = pool.y.span(row);
    const T* const from = pool.source.data + pool.source.plane(plane);
    T* const to = pool.result.data + pool.result.plane(plane) + row * pool.result.stride[1];
    for (int64_t i = 0; i < y.size(); ++i) {
      rows[i] = from + (y.begin + i) * pool.source.stride[1];
    }
    row_sums(rows, y.size(), width, sums);
    const auto one_by_one = [&](int64_t first, int64_t last) {
      for (int64_t column = first; column < last; ++column) {
        const Span x = spans[column];
        float sum = 0.0f;
        for (int64_t j = x.begin; j < x.end; ++j) {
          sum += sums[j];
        }
        averages[column] = y.size() * x.size() == 0 ? 0.0f : sum / pool.divisor.of(y, x);
      }
      narrow(averages + first, to + first, last - first);
    };
    one_by_one(0, inside.first);
    if (inside.first < inside.second) {
      const Span x = spans[inside.first];
      windows(sums + x.begin, pool.x.kernel, pool.x.stride, inside.second - inside.first,
              y.size() == 0 ? 1.0f : pool.divisor.of(y, x), to + inside.first);
    }
    one_by_one(inside.second, pool.x.out);
  };
  return run_tasks<float>(context, pool.result.planes() * pool.y.out, row_grain_size(width * most),
                          averages_at + pool.x.out, pool_row);
}

// One average of each plane.
template <class T>
bool pool_planes(const Pool<T>& pool) {
  constexpr int64_t kTogether = 256;
  const int64_t pixels = pool.y.in * pool.x.in, channels = pool.result.channels;
  const float divisor = pool.divisor.of(pool.y.span(0), pool.x.span(0));
  const auto put = [&](const double* totals, int64_t n, int64_t sample, int64_t channel) {
    float averages[kTogether];
    for (int64_t i = 0; i < n; ++i) {
      averages[i] = static_cast<float>(totals[i]) / divisor;
    }
    T* const to = pool.result.data + sample * pool.result.batch_stride + channel * pool.result.channel_stride;
    if (pool.result.channel_stride == 1) {
      narrow(averages, to, n);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      narrow(averages + i, to + i * pool.result.channel_stride, 1);
    }
  };
  const bool by_channels = pool.source.channel_stride == 1 && pool.source.stride[2] == channels &&
                           pool.source.stride[1] == channels * pool.x.in && channels > 1;
  const bool by_planes = pool.source.stride[2] == 1 && pool.source.stride[1] == pool.x.in;
  if (!by_channels && !by_planes) {
    return false;
  }
  const int64_t together =
      by_channels ? kTogether : std::clamp<int64_t>(row_grain_size(pixels), 1, kTogether);
  const int64_t pieces = ceil_divided(channels, together);
  parallel(pool.result.batch * pieces, row_grain_size(pixels * std::min(together, channels)),
           [&](int64_t begin, int64_t end) {
             for (int64_t piece = begin; piece < end; ++piece) {
               const int64_t sample = piece / pieces, channel = piece % pieces * together;
               const int64_t n = std::min(together, channels - channel);
               const T* const from = pool.source.data + sample * pool.source.batch_stride +
                                     channel * pool.source.channel_stride;
               double totals[kTogether] = {};
               if (by_channels) {
                 pool.functions.sum_rows.of(T{})(from, pixels, channels, n, totals);
               } else {
                 pool.functions.sum_each.of(T{})(from, n, pool.source.channel_stride, pixels, totals);
               }
               put(totals, n, sample, channel);
             }
           });
  return true;
}

// However the elements lie.
template <class T>
void pool_elements(const Pool<T>& pool) {
  const int64_t pixels = pool.y.out * pool.x.out;
  parallel(pool.result.planes() * pixels, row_grain_size(pool.y.most() * pool.x.most()),
           [&](int64_t begin, int64_t end) {
             for (int64_t task = begin; task < end; ++task) {
               const int64_t plane = task / pixels, row = task % pixels / pool.x.out,
                             column = task % pool.x.out;
               const Span y = pool.y.span(row), x = pool.x.span(column);
               float sum = 0.0f;
               for (int64_t i = y.begin; i < y.end; ++i) {
                 for (int64_t j = x.begin; j < x.end; ++j) {
                   sum += widened(pool.source.data[pool.source.plane(plane) + i * pool.source.stride[1] +
                                                   j * pool.source.stride[2]]);
                 }
               }
               sum = y.size() * x.size() == 0 ? 0.0f : sum / pool.divisor.of(y, x);
               narrow(&sum,
                      pool.result.data + pool.result.plane(plane) + row * pool.result.stride[1] +
                          column * pool.result.stride[2],
                      1);
             }
           });
}

void average(KernelRuntimeContext& context, const Functions& functions, const Tensor& self, const Axis& y,
             const Axis& x, const Divisor& divisor, Tensor& out) {
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    const Pool<T> pool{feature_map_at(static_cast<const T*>(self.const_data_ptr()), self, 2),
                       feature_map_at(static_cast<T*>(out.mutable_data_ptr()), out, 2),
                       y,
                       x,
                       divisor,
                       functions};
    if (pool.is_of_planes() && pool_planes(pool)) {
      return;
    }
    if (pool.is_by_channels()) {
      pool_channels(context, pool);
    } else if (pool.is_by_rows()) {
      pool_rows(context, pool);
    } else {
      pool_elements(pool);
    }
  });
}

constexpr char kAveragePool[] = "avg_pool2d.out";
constexpr char kAdaptivePool[] = "_adaptive_avg_pool2d.out";

}  // namespace

namespace native {

Tensor& avg_pool2d_out(KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList stride,
                       IntList padding, bool ceil_mode, bool count_include_pad,
                       std::optional<int64_t> divisor_override, Tensor& out) {
  const Functions functions = functions_of<kAveragePool>();
  const int64_t one = 1;
  const PoolWindow window{kernel_size, stride, padding, {&one, 1}, ceil_mode};
  Dims sizes;
  OPSMITH_CHECK(context, functions.averages.has(self.scalar_type()), NotSupported, out,
                "avg_pool2d takes " OPSMITH_TAKEN);
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type(), InvalidArgument, out,
                "%s: out and self must have one dtype", kAveragePool);
  OPSMITH_CHECK(context, divisor_override.value_or(1) != 0, InvalidArgument, out, "divisor must be not zero");
  if (!pooled_sizes(context, kAveragePool, self, 2, window, sizes) || !resize(context, out, sizes) ||
      !one_layout(context, {&out, &self}) || out.numel() == 0) {
    return out;
  }
  const auto axis = [&](int64_t d) {
    const int64_t kernel = entry(kernel_size, d);
    const int64_t at = self.dim() - 2 + d;
    return Axis{self.sizes()[at], out.sizes()[at], false, kernel, stride.empty() ? kernel : entry(stride, d),
                entry(padding, d)};
  };
  average(context, functions, self, axis(0), axis(1), {count_include_pad, divisor_override}, out);
  return out;
}

Tensor& adaptive_avg_pool2d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                Tensor& out) {
  const Functions functions = functions_of<kAdaptivePool>();
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, functions.averages.has(self.scalar_type()), NotSupported, out,
                "_adaptive_avg_pool2d takes " OPSMITH_TAKEN);
  if (!resize_adaptive_pool(context, kAdaptivePool, self, 2, output_size, out) || out.numel() == 0) {
    return out;
  }
  const auto axis = [&](int64_t d) {
    const int64_t in = self.sizes()[rank - 2 + d], to = out.sizes()[rank - 2 + d];
    return in % to == 0 ? Axis{in, to, false, in / to, in / to, 0} : Axis{in, to, true, 0, 0, 0};
  };
  average(context, functions, self, axis(0), axis(1), {false, std::nullopt}, out);
  return out;
}

}  // namespace native
}  // namespace opsmith::optimized
