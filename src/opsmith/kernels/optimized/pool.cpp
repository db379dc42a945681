// Largest elements of windows of a plane, and their places.
#include <algorithm>
#include <tuple>

#include "../common/pool_shape.h"
#include "../common/selection.h"
#include "../common/tasks.h"
#include "../common/temporary.h"
#include "by_dtype.h"
#include "threads.h"
#include "simd/float_functions.h"

namespace opsmith::optimized {
namespace {

constexpr char kMaxPool2[] = "max_pool2d_with_indices.out";

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
  bool is_inside(int64_t d, int64_t index) const {
    return index >= 0 && index < source.size[static_cast<size_t>(d) + 1];
  }
};

// The elements of a window that lie within the plane, of which there is one at least.
template <class T>
struct Elements {
  const T** at;
  int64_t* places;
  int64_t number;
};

// Of the window of the result's pixel (y, x), in the plane that begins at `plane`.
template <class T>
void find_elements(const MaxPool<T>& pool, const T* plane, int64_t y, int64_t x, Elements<T>& found) {
  found.number = 0;
  for (int64_t i = 0; i < pool.kernel[0]; ++i) {
    const int64_t row = y * pool.stride[0] - pool.padding[0] + i * pool.dilation[0];
    for (int64_t j = 0; pool.is_inside(0, row) && j < pool.kernel[1]; ++j) {
      const int64_t column = x * pool.stride[1] - pool.padding[1] + j * pool.dilation[1];
      if (pool.is_inside(1, column)) {
        found.at[found.number] = plane + row * pool.source.stride[1] + column * pool.source.stride[2];
        found.places[found.number++] = row * pool.source.size[2] + column;
      }
    }
  }
}

// `count` results from the pixel (y, x) on: channels of one, or with `step` 1 pixels of a row.
template <class T>
void put_largest(const MaxPool<T>& pool, const Elements<T>& found, int64_t step, int64_t place_step,
                 int64_t count, T* result, int64_t* places) {
  LargestOf<T> of;
  of.elements = found.at;
  of.places = found.places;
  of.number = found.number;
  of.step = step;
  of.place_step = place_step;
  of.count = count;
  of.result = result;
  of.result_places = places;
  pool.largest(of);
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

template <class T>
bool run(KernelRuntimeContext& context, const MaxPool<T>& pool) {
  const bool by_channels =
      pool.source.channel_stride == 1 && pool.result.channel_stride == 1 && pool.places.channel_stride == 1;
  const int64_t units = by_channels ? pool.result.batch : pool.result.planes();
  const int64_t each = pool.window() * pool.result.size[2] * (by_channels ? pool.result.channels : 1) / 8;
  // An element's address and its place.
  return run_tasks<float>(context, units * pool.result.size[1], row_grain_size(each), 4 * pool.window(),
                          [&](int64_t task, float* memory) {
                            Elements<T> found;
                            found.at = reinterpret_cast<const T**>(memory);
                            found.places = reinterpret_cast<int64_t*>(memory + 2 * pool.window());
                            const int64_t unit = task / pool.result.size[1], y = task % pool.result.size[1];
                            if (by_channels) {
                              pool_channels(pool, unit, y, found);
                            } else {
                              pool_row(pool, unit, y, found);
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
