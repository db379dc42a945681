// Pools in one to three dimensions, and their gradients: averages over windows, adaptive averages, and
// largest elements with their places.
#include <cmath>
#include <limits>
#include <optional>

#include "../../common/parallel.h"
#include "../../common/dtypes.h"
#include "../../common/temporary.h"
#include "../../common/pool_shape.h"

namespace opsmith::portable {
namespace {

// The elements that one output index takes from one dimension: [begin, end), `step` apart, out of `padded`
// ones that the window has where padding counts.
struct Span {
  int64_t begin;
  int64_t end;
  int64_t padded;
};

// The windows of all output indices of the three dimensions.
struct Spans {
  const Span* of[kSpatial];
  int64_t size[kSpatial];  // of the output
  int64_t step[kSpatial];
  Temporary<Span> memory;
};

// Fills the tables from bounds(d, index) of the dimensions that there are. False with the call rejected.
template <class Bounds>
bool make_spans(KernelRuntimeContext& context, const int64_t* out_sizes, int64_t spatial,
                const Bounds& bounds, Spans& spans) {
  spans.memory = temporary<Span>(context, out_sizes[0] + out_sizes[1] + out_sizes[2]);
  Span* table = spans.memory;
  if (table == nullptr) {
    return false;
  }
  for (int64_t d = 0; d < kSpatial; ++d) {
    spans.of[d] = table;
    spans.size[d] = out_sizes[d];
    spans.step[d] = 1;
    for (int64_t i = 0; i < out_sizes[d]; ++i) {
      const int64_t own = d - (kSpatial - spatial);
      *table++ = own < 0 ? Span{0, 1, 1} : bounds(own, i);
    }
  }
  return true;
}

bool window_spans(KernelRuntimeContext& context, const ByteFeatureMap& in, const int64_t* out_sizes,
                  int64_t spatial, const PoolWindow& window, Spans& spans) {
  const bool made = make_spans(
      context, out_sizes, spatial,
      [&](int64_t d, int64_t i) {
        const int64_t size = in.size[d + kSpatial - spatial];
        const int64_t kernel = entry(window.kernel, d);
        const int64_t stride = window.stride.empty() ? kernel : entry(window.stride, d);
        const int64_t padding = entry(window.padding, d);
        const int64_t dilation = entry(window.dilation, d);
        const int64_t begin = i * stride - padding;
        const int64_t end = begin + dilation * (kernel - 1) + 1;
        const int64_t padded = std::min(end, size + padding) - begin;
        return Span{first_inside(begin, dilation), std::min(end, size), padded};
      },
      spans);
  for (int64_t d = 0; made && d < spatial; ++d) {
    spans.step[d + kSpatial - spatial] = entry(window.dilation, d);
  }
  return made;
}

// f(plane, z, y, offset) for every row of the output, with the offset of its first element; rows among the
// threads.
template <class F>
void for_each_row(const ByteFeatureMap& out, int64_t work, const F& f) {
  const int64_t rows = out.size[0] * out.size[1];
  parallel(out.planes() * rows, grain_size(work * out.size[2]), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t plane = task / rows;
      const int64_t z = task % rows / out.size[1];
      const int64_t y = task % out.size[1];
      f(plane, z, y, out.plane(plane) + z * out.stride[0] + y * out.stride[1]);
    }
  });
}

int64_t work_of(const Spans& spans) {
  int64_t work = 1;
  for (int64_t d = 0; d < kSpatial; ++d) {
    work *= spans.size[d] == 0 ? 1 : std::max<int64_t>(1, spans.of[d][0].padded / spans.step[d]);
  }
  return work;
}

// The divisor of a sum.
struct Divisor {
  bool count_padding;
  std::optional<int64_t> given;

  int64_t of(const Span& z, const Span& y, const Span& x) const {
    if (given.has_value()) {
      return *given;
    }
    return count_padding ? z.padded * y.padded * x.padded
                         : (z.end - z.begin) * (y.end - y.begin) * (x.end - x.begin);
  }
};

// ATen averages integers in windows of one size, and ExecuTorch in others too.
using Averaged = Types<float, double, Half, BFloat16, int64_t>;

template <class T>
[[gnu::noinline]] void average(const ByteFeatureMap& in, const ByteFeatureMap& out, const Spans& spans,
                               const Divisor& divisor) {
  using C = compute_t<T>;
  const T* const from = reinterpret_cast<const T*>(in.data);
  T* const to = reinterpret_cast<T*>(out.data);
  for_each_row(out, work_of(spans), [&](int64_t plane, int64_t oz, int64_t oy, int64_t place) {
    const Span z = spans.of[0][oz];
    const Span y = spans.of[1][oy];
    const T* const source = from + in.plane(plane);
    for (int64_t ox = 0; ox < out.size[2]; ++ox, place += out.stride[2]) {
      const Span x = spans.of[2][ox];
      C sum = 0;
      bool any = false;
      for (int64_t i = z.begin; i < z.end; ++i) {
        for (int64_t j = y.begin; j < y.end; ++j) {
          const T* const row = source + i * in.stride[0] + j * in.stride[1];
          for (int64_t k = x.begin; k < x.end; ++k) {
            sum += load_element(row + k * in.stride[2]);
            any = true;
          }
        }
      }
      store_element(to + place, any ? static_cast<C>(sum / static_cast<C>(divisor.of(z, y, x))) : C(0));
    }
  });
}

// Each element of the gradient goes, divided, to all elements of its window. Planes among the threads.
template <class T>
[[gnu::noinline]] void average_backward(const ByteFeatureMap& grad, const ByteFeatureMap& result,
                                        const Spans& spans, const Divisor& divisor) {
  using C = compute_t<T>;
  const T* const from = reinterpret_cast<const T*>(grad.data);
  T* const to = reinterpret_cast<T*>(result.data);
  const int64_t work = std::max<int64_t>(1, result.pixels() + grad.pixels() * work_of(spans));
  parallel(result.planes(), grain_size(work), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const T* const source = from + grad.plane(plane);
      T* const destination = to + result.plane(plane);
      for (int64_t z = 0; z < grad.size[0]; ++z) {
        for (int64_t y = 0; y < grad.size[1]; ++y) {
          for (int64_t x = 0; x < grad.size[2]; ++x) {
            const Span& sz = spans.of[0][z];
            const Span& sy = spans.of[1][y];
            const Span& sx = spans.of[2][x];
            const C value =
                load_element(source + z * grad.stride[0] + y * grad.stride[1] + x * grad.stride[2]);
            const C part = static_cast<C>(value / static_cast<C>(divisor.of(sz, sy, sx)));
            for (int64_t i = sz.begin; i < sz.end; ++i) {
              for (int64_t j = sy.begin; j < sy.end; ++j) {
                T* const row = destination + i * result.stride[0] + j * result.stride[1];
                for (int64_t k = sx.begin; k < sx.end; ++k) {
                  T* const element = row + k * result.stride[2];
                  store_element(element, static_cast<C>(load_element(element) + part));
                }
              }
            }
          }
        }
      }
    }
  });
}

void set_to_zero(Tensor& out) {
  if (out.numel() != 0) {
    std::memset(out.mutable_data_ptr(), 0, out.nbytes());  // out is dense
  }
}

template <class T>
[[gnu::noinline]] void maximum(const ByteFeatureMap& in, const ByteFeatureMap& out,
                               const ByteFeatureMap& places, const Spans& spans) {
  using C = compute_t<T>;
  const T* const from = reinterpret_cast<const T*>(in.data);
  T* const to = reinterpret_cast<T*>(out.data);
  int64_t* const indices = reinterpret_cast<int64_t*>(places.data);
  for_each_row(out, work_of(spans), [&](int64_t plane, int64_t oz, int64_t oy, int64_t place) {
    const Span z = spans.of[0][oz];
    const Span y = spans.of[1][oy];
    const T* const source = from + in.plane(plane);
    int64_t* index = indices + places.plane(plane) + oz * places.stride[0] + oy * places.stride[1];
    for (int64_t ox = 0; ox < out.size[2]; ++ox, place += out.stride[2], index += places.stride[2]) {
      const Span x = spans.of[2][ox];
      C best = std::numeric_limits<C>::has_infinity ? static_cast<C>(-std::numeric_limits<C>::infinity())
                                                    : std::numeric_limits<C>::lowest();
      int64_t found = (z.begin * in.size[1] + y.begin) * in.size[2] + x.begin;
      for (int64_t i = z.begin; i < z.end; i += spans.step[0]) {
        for (int64_t j = y.begin; j < y.end; j += spans.step[1]) {
          const T* const row = source + i * in.stride[0] + j * in.stride[1];
          for (int64_t k = x.begin; k < x.end; k += spans.step[2]) {
            const C value = load_element(row + k * in.stride[2]);
            if (value > best || value != value) {  // NaN is the largest
              best = value;
              found = (i * in.size[1] + j) * in.size[2] + k;
            }
          }
        }
      }
      store_element(to + place, best);
      *index = found;
    }
  });
}

template <class T>
[[gnu::noinline]] void maximum_backward(const ByteFeatureMap& grad, const ByteFeatureMap& places,
                                        const ByteFeatureMap& result) {
  const T* const from = reinterpret_cast<const T*>(grad.data);
  const int64_t* const indices = reinterpret_cast<const int64_t*>(places.data);
  T* const to = reinterpret_cast<T*>(result.data);
  const int64_t plane_size = result.size[1] * result.size[2];
  // Of a plane that is dense the place is the offset.
  const bool is_dense = result.stride[2] == 1 && result.stride[1] == result.size[2] &&
                        (result.size[0] == 1 || result.stride[0] == plane_size);
  const auto offset_of = [&](int64_t place) {
    return place / plane_size * result.stride[0] + place % plane_size / result.size[2] * result.stride[1] +
           place % result.size[2] * result.stride[2];
  };
  parallel(result.planes(), grain_size(result.pixels()), [&, is_dense](int64_t begin, int64_t end) {
    const int64_t columns = grad.size[2], pixels = result.pixels();
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t source = grad.plane(plane);
      const int64_t index = places.plane(plane);
      T* const destination = to + result.plane(plane);
      for (int64_t z = 0; z < grad.size[0]; ++z) {
        for (int64_t y = 0; y < grad.size[1]; ++y) {
          const int64_t* const at = indices + index + z * places.stride[0] + y * places.stride[1];
          const T* const value = from + source + z * grad.stride[0] + y * grad.stride[1];
          const int64_t place_step = places.stride[2], step = grad.stride[2];
          for (int64_t x = 0; x < columns; ++x) {
            const int64_t place = at[x * place_step];
            if (place < 0 || place >= pixels) {
              continue;  // checked before
            }
            T* const element = destination + (is_dense ? place : offset_of(place));
            store_element(element,
                          static_cast<compute_t<T>>(load_element(element) + load_element(value + x * step)));
          }
        }
      }
    }
  });
}

template <const char* Name>
Tensor& average_pool(KernelRuntimeContext& context, const Tensor& self, int64_t spatial,
                     const PoolWindow& window, const Divisor& divisor, Tensor& out) {
  Dims sizes;
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type(), InvalidArgument, out,
                "%s: out and self must have one dtype", Name);
  OPSMITH_CHECK(context, divisor.given.value_or(1) != 0, InvalidArgument, out, "divisor must be not zero");
  if (!pooled_sizes(context, Name, self, spatial, window, sizes) || !resize(context, out, sizes) ||
      !one_layout(context, {&out, &self}) || out.numel() == 0) {
    return out;
  }
  const ByteFeatureMap in = feature_map_of(self, spatial);
  const ByteFeatureMap result = feature_map_of(out, spatial);
  Spans spans;
  if (window_spans(context, in, result.size, spatial, window, spans)) {
    with_dtype<Name>(context, Averaged{}, self.scalar_type(),
                     [&](auto type) { average<typename decltype(type)::type>(in, result, spans, divisor); });
  }
  return out;
}

template <const char* Name>
Tensor& average_pool_backward(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                              int64_t spatial, const PoolWindow& window, const Divisor& divisor,
                              Tensor& grad_input) {
  Dims sizes;
  OPSMITH_CHECK(context, divisor.given.value_or(1) != 0, InvalidArgument, grad_input,
                "divisor must be not zero");
  if (!pooled_sizes(context, Name, self, spatial, window, sizes)) {
    return grad_input;
  }
  OPSMITH_CHECK(
      context, sizes_of(grad_output) == sizes && grad_output.scalar_type() == grad_input.scalar_type(),
      InvalidArgument, grad_input, "%s: grad_output is not of the pool's output size and dtype", Name);
  if (!resize(context, grad_input, sizes_of(self))) {
    return grad_input;
  }
  set_to_zero(grad_input);
  const ByteFeatureMap grad = feature_map_of(grad_output, spatial);
  const ByteFeatureMap result = feature_map_of(grad_input, spatial);
  Spans spans;
  if (window_spans(context, result, grad.size, spatial, window, spans)) {
    with_dtype<Name>(context, Averaged{}, grad_input.scalar_type(), [&](auto type) {
      average_backward<typename decltype(type)::type>(grad, result, spans, divisor);
    });
  }
  return grad_input;
}

// Output index i takes [floor(i * in / out), ceil((i + 1) * in / out)).
bool adaptive_spans(KernelRuntimeContext& context, const ByteFeatureMap& in, const ByteFeatureMap& out,
                    int64_t spatial, Spans& spans) {
  return make_spans(
      context, out.size, spatial,
      [&](int64_t d, int64_t i) {
        const int64_t size = in.size[d + kSpatial - spatial];
        const int64_t count = out.size[d + kSpatial - spatial];
        const int64_t begin = i * size / count;
        const int64_t end = ((i + 1) * size + count - 1) / count;
        return Span{begin, end, end - begin};
      },
      spans);
}

constexpr Divisor kCounted{false, std::nullopt};

template <const char* Name>
Tensor& adaptive_pool(KernelRuntimeContext& context, const Tensor& self, int64_t spatial, IntList output_size,
                      Tensor& out) {
  if (!resize_adaptive_pool(context, Name, self, spatial, output_size, out) || out.numel() == 0) {
    return out;
  }
  const ByteFeatureMap in = feature_map_of(self, spatial);
  const ByteFeatureMap result = feature_map_of(out, spatial);
  Spans spans;
  if (adaptive_spans(context, in, result, spatial, spans)) {
    with_dtype<Name>(context, Averaged{}, self.scalar_type(),
                     [&](auto type) { average<typename decltype(type)::type>(in, result, spans, kCounted); });
  }
  return out;
}

template <const char* Name>
Tensor& adaptive_pool_backward(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                               int64_t spatial, Tensor& out) {
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, rank == grad_output.dim(), InvalidArgument, out,
                "%s: Expected dimensions %d for `grad_output` but got dimensions %d", Name,
                static_cast<int>(rank), static_cast<int>(grad_output.dim()));
  OPSMITH_CHECK(context, rank == spatial + 1 || rank == spatial + 2, InvalidArgument, out,
                "%s: Expected %dD or %dD tensors, but got %d dimensions", Name, static_cast<int>(spatial + 1),
                static_cast<int>(spatial + 2), static_cast<int>(rank));
  OPSMITH_CHECK(context, out.scalar_type() == grad_output.scalar_type(), InvalidArgument, out,
                "%s: expected dtype %s for grad_output but got dtype %s", Name, name_of(out.scalar_type()),
                name_of(grad_output.scalar_type()));
  for (int64_t d = 0; d < rank - spatial; ++d) {
    OPSMITH_CHECK(context, grad_output.sizes()[d] == self.sizes()[d], InvalidArgument, out,
                  "%s: grad_output and self do not belong together", Name);
  }
  if (!resize(context, out, sizes_of(self))) {
    return out;
  }
  set_to_zero(out);
  const ByteFeatureMap grad = feature_map_of(grad_output, spatial);
  const ByteFeatureMap result = feature_map_of(out, spatial);
  Spans spans;
  if (grad_output.numel() != 0 && adaptive_spans(context, result, grad, spatial, spans)) {
    with_dtype<Name>(context, Floating{}, out.scalar_type(), [&](auto type) {
      average_backward<typename decltype(type)::type>(grad, result, spans, kCounted);
    });
  }
  return out;
}

using Results = std::tuple<Tensor&, Tensor&>;

template <const char* Name>
Results max_pool(KernelRuntimeContext& context, const Tensor& self, int64_t spatial, const PoolWindow& window,
                 Tensor& out, Tensor& indices) {
  Results results(out, indices);
  if (!resize_max_pool(context, Name, self, spatial, window, out, indices) || out.numel() == 0) {
    return results;
  }
  const ByteFeatureMap in = feature_map_of(self, spatial);
  const ByteFeatureMap result = feature_map_of(out, spatial);
  Spans spans;
  if (window_spans(context, in, result.size, spatial, window, spans)) {
    with_dtype<Name>(context, Real{}, self.scalar_type(), [&](auto type) {
      maximum<typename decltype(type)::type>(in, result, feature_map_of(indices, spatial), spans);
    });
  }
  return results;
}

template <const char* Name>
Tensor& max_pool_backward(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                          int64_t spatial, const PoolWindow& window, const Tensor& indices,
                          Tensor& grad_input) {
  Dims sizes;
  if (!pooled_sizes(context, Name, self, spatial, window, sizes)) {
    return grad_input;
  }
  OPSMITH_CHECK(context,
                sizes_of(grad_output) == sizes && sizes_of(indices) == sizes &&
                    indices.scalar_type() == ScalarType::Long &&
                    grad_output.scalar_type() == grad_input.scalar_type() &&
                    self.scalar_type() == grad_output.scalar_type(),
                InvalidArgument, grad_input, "%s: grad_output and indices are not of the pool's output",
                Name);
  if (!resize(context, grad_input, sizes_of(self))) {
    return grad_input;
  }
  const ByteFeatureMap result = feature_map_of(grad_input, spatial);
  const int64_t* const places = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    OPSMITH_CHECK(context, places[i] >= 0 && places[i] < result.pixels(), InvalidArgument, grad_input,
                  "found an invalid max index: %" PRId64 " (input of %" PRId64 " elements a channel)",
                  places[i], result.pixels());
  }
  set_to_zero(grad_input);
  with_dtype<Name>(context, Floating{}, grad_input.scalar_type(), [&](auto type) {
    maximum_backward<typename decltype(type)::type>(feature_map_of(grad_output, spatial),
                                                    feature_map_of(indices, spatial), result);
  });
  return grad_input;
}

constexpr char kAverage1[] = "avg_pool1d.out";
constexpr char kAverage2[] = "avg_pool2d.out";
constexpr char kAverage3[] = "avg_pool3d.out";
constexpr char kAverageBackward2[] = "avg_pool2d_backward.grad_input";
constexpr char kAverageBackward3[] = "avg_pool3d_backward.grad_input";
constexpr char kAdaptive1[] = "adaptive_avg_pool1d.out";
constexpr char kAdaptive2[] = "_adaptive_avg_pool2d.out";
constexpr char kAdaptive3[] = "_adaptive_avg_pool3d.out";
constexpr char kAdaptiveBackward2[] = "_adaptive_avg_pool2d_backward.out";
constexpr char kAdaptiveBackward3[] = "_adaptive_avg_pool3d_backward.out";
constexpr char kMaxPool2[] = "max_pool2d_with_indices.out";
constexpr char kMaxPool3[] = "max_pool3d_with_indices.out";
constexpr char kMaxPoolBackward2[] = "max_pool2d_with_indices_backward.grad_input";
constexpr char kMaxPoolBackward3[] = "max_pool3d_with_indices_backward.grad_input";

constexpr int64_t kOnes[] = {1};

IntList undilated() {
  return {kOnes, 1};
}

}  // namespace

namespace native {

Tensor& avg_pool1d_out(KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList stride,
                       IntList padding, bool ceil_mode, bool count_include_pad, Tensor& out) {
  return average_pool<kAverage1>(context, self, 1, {kernel_size, stride, padding, undilated(), ceil_mode},
                                 {count_include_pad, std::nullopt}, out);
}

Tensor& avg_pool2d_out(KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList stride,
                       IntList padding, bool ceil_mode, bool count_include_pad,
                       std::optional<int64_t> divisor_override, Tensor& out) {
  return average_pool<kAverage2>(context, self, 2, {kernel_size, stride, padding, undilated(), ceil_mode},
                                 {count_include_pad, divisor_override}, out);
}

Tensor& avg_pool3d_out(KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList stride,
                       IntList padding, bool ceil_mode, bool count_include_pad,
                       std::optional<int64_t> divisor_override, Tensor& out) {
  return average_pool<kAverage3>(context, self, 3, {kernel_size, stride, padding, undilated(), ceil_mode},
                                 {count_include_pad, divisor_override}, out);
}

Tensor& adaptive_avg_pool1d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                Tensor& out) {
  return adaptive_pool<kAdaptive1>(context, self, 1, output_size, out);
}

Tensor& adaptive_avg_pool2d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                Tensor& out) {
  return adaptive_pool<kAdaptive2>(context, self, 2, output_size, out);
}

Tensor& adaptive_avg_pool3d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                Tensor& out) {
  return adaptive_pool<kAdaptive3>(context, self, 3, output_size, out);
}

// The same of planes and of volumes.
#define OPSMITH_POOLS(spatial)                                                                               \
  Tensor& avg_pool##spatial##d_backward_out(KernelRuntimeContext& context, const Tensor& grad_output,        \
                                            const Tensor& self, IntList kernel_size, IntList stride,         \
                                            IntList padding, bool ceil_mode, bool count_include_pad,         \
                                            std::optional<int64_t> divisor_override, Tensor& grad_input) {   \
    return average_pool_backward<kAverageBackward##spatial>(                                                 \
        context, grad_output, self, spatial, {kernel_size, stride, padding, undilated(), ceil_mode},         \
        {count_include_pad, divisor_override}, grad_input);                                                  \
  }                                                                                                          \
  Tensor& adaptive_avg_pool##spatial##d_backward_out(                                                        \
      KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self, Tensor& out) {           \
    return adaptive_pool_backward<kAdaptiveBackward##spatial>(context, grad_output, self, spatial, out);     \
  }                                                                                                          \
  Results max_pool##spatial##d_with_indices_out(                                                             \
      KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList stride,                \
      IntList padding, IntList dilation, bool ceil_mode, Tensor& out, Tensor& indices) {                     \
    return max_pool<kMaxPool##spatial>(context, self, spatial,                                               \
                                       {kernel_size, stride, padding, dilation, ceil_mode}, out, indices);   \
  }                                                                                                          \
  Tensor& max_pool##spatial##d_with_indices_backward_out(                                                    \
      KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self, IntList kernel_size,     \
      IntList stride, IntList padding, IntList dilation, bool ceil_mode, const Tensor& indices,              \
      Tensor& grad_input) {                                                                                  \
    return max_pool_backward<kMaxPoolBackward##spatial>(context, grad_output, self, spatial,                 \
                                                        {kernel_size, stride, padding, dilation, ceil_mode}, \
                                                        indices, grad_input);                                \
  }
OPSMITH_POOLS(2)
OPSMITH_POOLS(3)
#undef OPSMITH_POOLS

}  // namespace native
}  // namespace opsmith::portable
