// Largest elements of windows of a plane, and their places.
#include <algorithm>
#include <array>
#include <tuple>

#include "../common/pool_shape.h"
#include "../common/selection.h"
#include "../common/tasks.h"
#include "../common/temporary.h"
#include "by_dtype.h"
#include "threads.h"
#include "float_functions.h"

namespace opsmith::optimized {
namespace {

constexpr char kMaxPool2[] = "max_pool2d_with_indices.out";

// Of a row, no more of which are pooled with those of other rows; of such a plane, whose offsets lie on the
// stack.
constexpr int64_t kNarrow = 8;
constexpr int64_t kMostPixels = 256;

template <class T>
using Largest = void(const LargestOf<T>& of);

template <class T>
struct MaxPool {
  FeatureMap<const T> source;
  FeatureMap<T> result;
  FeatureMap<int64_t> places;
  // By dimension, y and x.
  int64_t kernel[2];
  int64_t stride[2];
  int64_t padding[2];
  int64_t dilation[2];
  void (*largest)(const LargestOf<T>& of);

  int64_t window() const { return kernel[0] * kernel[1]; }
  // Of a window's elements along a dimension, those that lie within the plane: the first, and behind the
  // last.
  int64_t first_index(int64_t d, int64_t result_index) const {
    return first_inside(result_index * stride[d] - padding[d], dilation[d]);
  }
  int64_t end_index(int64_t d, int64_t result_index) const {
    const int64_t last = result_index * stride[d] - padding[d] + (kernel[d] - 1) * dilation[d];
    return std::min(last + 1, source.size[d + 1]);
  }
};

// The elements of a window that lie within the plane. Where dilation takes all of them beyond its edges there
// are none, and a place that is ATen's.
template <class T>
struct Elements {
  const T** at;
  int64_t* places;
  int64_t number;
};

// Of the window of the result's pixel (y, x), in the plane that begins at `plane`.
template <class T>
void find_elements(const MaxPool<T>& pool, const T* plane, int64_t y, int64_t x, Elements<T>& found) {
  const int64_t top = pool.first_index(0, y), left = pool.first_index(1, x);
  found.number = 0;
  found.places[0] = top * pool.source.size[2] + left;
  const int64_t bottom = pool.end_index(0, y), right = pool.end_index(1, x);
  for (int64_t row = top; row < bottom; row += pool.dilation[0]) {
    for (int64_t column = left; column < right; column += pool.dilation[1]) {
      found.at[found.number] = plane + row * pool.source.stride[1] + column * pool.source.stride[2];
      found.places[found.number++] = row * pool.source.size[2] + column;
    }
  }
}

// `count` results from the pixel (y, x) on: channels of one, or with `step` 1 pixels of a row, or else those
// at `offsets`.
template <class T>
void put_largest(const MaxPool<T>& pool, const Elements<T>& found, int64_t step, int64_t place_step,
                 int64_t count, T* result, int64_t* places, const int64_t* offsets = nullptr) {
  pool.largest({found.at, found.places, found.number, offsets, step, place_step, count, result, places});
}

// Rows of a channels-last map, all channels of a pixel at once.
template <class T>
void pool_channels(const MaxPool<T>& pool, int64_t sample, int64_t y, Elements<T>& found) {
  const T* const plane = pool.source.data + sample * pool.source.batch_stride;
  for (int64_t x = 0; x < pool.result.size[2]; ++x) {
    find_elements(pool, plane, y, x, found);
    put_largest(pool, found, 1, 0, pool.result.channels,
                pool.result.data + sample * pool.result.batch_stride + y * pool.result.stride[1] +
                    x * pool.result.stride[2],
                pool.places.data + sample * pool.places.batch_stride + y * pool.places.stride[1] +
                    x * pool.places.stride[2]);
  }
}

// A row of a plane: the pixels whose windows lie within it at once, where those of the results lie one after
// the other, and all others one by one.
template <class T>
void pool_row(const MaxPool<T>& pool, int64_t index, int64_t y, Elements<T>& found) {
  const T* const plane = pool.source.data + pool.source.plane(index);
  T* const result = pool.result.data + pool.result.plane(index) + y * pool.result.stride[1];
  int64_t* const places = pool.places.data + pool.places.plane(index) + y * pool.places.stride[1];
  const int64_t width = pool.result.size[2], stride = pool.stride[1], padding = pool.padding[1];
  const int64_t last = pool.source.size[2] - 1 + padding - (pool.kernel[1] - 1) * pool.dilation[1];
  const int64_t begin = std::min(width, ceil_divided(padding, stride));
  const int64_t end = last < 0 ? begin : std::clamp(last / stride + 1, begin, width);
  const int64_t result_step = pool.result.stride[2], places_step = pool.places.stride[2];
  const bool is_dense = result_step == 1 && places_step == 1;
  for (int64_t x = 0; x < width;) {
    const int64_t count = is_dense && x == begin && end > begin ? end - begin : 1;
    find_elements(pool, plane, y, x, found);
    put_largest(pool, found, stride * pool.source.stride[2], stride, count, result + x * result_step,
                places + x * places_step);
    x += count;
  }
}

// A plane at once, the pixels' `offsets` of which are known: a vector then spans rows that are narrow.
template <class T>
void pool_plane(const MaxPool<T>& pool, int64_t index, const int64_t* offsets, Elements<T>& found) {
  find_elements(pool, pool.source.data + pool.source.plane(index), 0, 0, found);
  put_largest(pool, found, 0, 0, pool.result.pixels(), pool.result.data + pool.result.plane(index),
              pool.places.data + pool.places.plane(index), offsets);
}

// Whether planes are pooled whole: their elements lie one after the other, every window lies within, and rows
// of results are narrower than vectors.
template <class T>
bool is_by_planes(const MaxPool<T>& pool) {
  const auto is_dense = [](const auto& map) { return map.stride[2] == 1 && map.stride[1] == map.size[2]; };
  const auto is_within = [&](int64_t d) {
    const int64_t last = (pool.result.size[d + 1] - 1) * pool.stride[d];
    return pool.padding[d] == 0 && last + (pool.kernel[d] - 1) * pool.dilation[d] < pool.source.size[d + 1];
  };
  return pool.result.size[2] <= kNarrow && pool.result.pixels() <= kMostPixels && is_dense(pool.source) &&
         is_dense(pool.result) && is_dense(pool.places) && is_within(0) && is_within(1);
}

template <class T>
bool run(KernelRuntimeContext& context, const MaxPool<T>& pool) {
  const bool by_channels =
      pool.source.channel_stride == 1 && pool.result.channel_stride == 1 && pool.places.channel_stride == 1;
  const bool by_planes = !by_channels && is_by_planes(pool);
  const int64_t height = pool.result.size[1], width = pool.result.size[2];
  std::array<int64_t, kMostPixels> offsets;
  if (by_planes) {
    for (int64_t pixel = 0; pixel < height * width; ++pixel) {
      offsets[static_cast<size_t>(pixel)] =
          pixel / width * pool.stride[0] * pool.source.size[2] + pixel % width * pool.stride[1];
    }
  }
  const int64_t units = by_channels ? pool.result.batch : pool.result.planes();
  const int64_t rows = by_planes ? 1 : height;
  const int64_t results = width * (by_channels ? pool.result.channels : by_planes ? height : 1);
  // An element's address and its place.
  return run_tasks<float>(context, units * rows, row_grain_size(pool.window() * results / 8),
                          4 * pool.window(), [&](int64_t task, float* memory) {
                            Elements<T> found;
                            found.at = reinterpret_cast<const T**>(memory);
                            found.places = reinterpret_cast<int64_t*>(memory + 2 * pool.window());
                            if (by_planes) {
                              pool_plane(pool, task, offsets.data(), found);
                            } else if (by_channels) {
                              pool_channels(pool, task / rows, task % rows, found);
                            } else {
                              pool_row(pool, task / rows, task % rows, found);
                            }
                          });
}

template <class T>
void compute(KernelRuntimeContext& context, const Tensor& self, const PoolWindow& window,
             void (*largest)(const LargestOf<T>& of), Tensor& out, Tensor& indices) {
  MaxPool<T> pool;
  pool.source = feature_map_at(static_cast<const T*>(self.const_data_ptr()), self, 2);
  pool.result = feature_map_at(static_cast<T*>(out.mutable_data_ptr()), out, 2);
  pool.places = feature_map_at(static_cast<int64_t*>(indices.mutable_data_ptr()), indices, 2);
  for (int64_t d = 0; d < 2; ++d) {
    pool.kernel[d] = entry(window.kernel, d);
    pool.stride[d] = window.stride.empty() ? pool.kernel[d] : entry(window.stride, d);
    pool.padding[d] = entry(window.padding, d);
    pool.dilation[d] = entry(window.dilation, d);
  }
  pool.largest = largest;
  run(context, pool);
}

}  // namespace

namespace native {

std::tuple<Tensor&, Tensor&> max_pool2d_with_indices_out(KernelRuntimeContext& context, const Tensor& self,
                                                         IntList kernel_size, IntList stride, IntList padding,
                                                         IntList dilation, bool ceil_mode, Tensor& out,
                                                         Tensor& indices) {
  std::tuple<Tensor&, Tensor&> results(out, indices);
  const PoolWindow window{kernel_size, stride, padding, dilation, ceil_mode};
  OPSMITH_CHECK(context, is_taken(self.scalar_type()), NotSupported, results,
                "max_pool2d_with_indices takes " OPSMITH_TAKEN);
  if (!resize_max_pool(context, kMaxPool2, self, 2, window, out, indices) || out.numel() == 0) {
    return results;
  }
  ByDtype<Largest> largest;
  OPSMITH_SET_FUNCTIONS(largest, kMaxPool2, largest)
  if (largest.has(self.scalar_type())) {
    with_element(self.scalar_type(),
                 [&](auto element) { compute(context, self, window, largest.of(element), out, indices); });
  }
  return results;
}

}  // namespace native
}  // namespace opsmith::optimized
