// grid_sampler_2d: a feature map read at the places that a grid names, in [-1, 1] from edge to edge.
#include <cmath>

#include "../../common/parallel.h"
#include "../../common/dtypes.h"
#include "../../common/resize.h"
#include "../../common/feature_map.h"

namespace opsmith::portable {
namespace {

constexpr char kName[] = "grid_sampler_2d.out";

// The numbers of torch.nn.functional.grid_sample's modes.
enum Interpolation { kBilinear, kNearest, kBicubic };
enum Padding { kZeros, kBorder, kReflection };

// ATen takes floats only, ExecuTorch all numbers: integers are calculated with as such, places among them.
using Sampleable = Real;

struct Sampling {
  int64_t interpolation;
  int64_t padding;
  bool align_corners;
};

template <class C>
C clipped(C place, int64_t size) {
  return std::min(static_cast<C>(size - 1), std::max(place, C(0)));
}

// The place between `low` and `high`, both given twice over, that reflecting at them leads to.
template <class C>
C reflected(C place, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) {
    return C(0);
  }
  const C low = static_cast<C>(twice_low) / 2;
  const C span = static_cast<C>(twice_high - twice_low) / 2;
  const C distance = std::fabs(place - low);
  const C extra = std::fmod(distance, span);
  const bool forward = static_cast<int64_t>(std::floor(distance / span)) % 2 == 0;
  return forward ? extra + low : span - extra + low;
}

template <class C>
C unnormalised(C place, int64_t size, bool align_corners) {
  return align_corners ? (place + 1) / 2 * static_cast<C>(size - 1)
                       : ((place + 1) * static_cast<C>(size) - 1) / 2;
}

template <class C>
C padded(C place, int64_t size, const Sampling& sampling) {
  if (sampling.padding == kBorder) {
    return clipped(place, size);
  }
  if (sampling.padding == kReflection) {
    return clipped(
        sampling.align_corners ? reflected(place, 0, 2 * (size - 1)) : reflected(place, -1, 2 * size - 1),
        size);
  }
  return place;
}

// An index that may be far outside what int64_t holds, NaN among it: outside is outside.
template <class C>
int64_t index_of(C place) {
  return place >= C(-1e9) && place <= C(1e9) ? static_cast<int64_t>(place) : -1000000000;
}

template <class T>
struct Sampled {
  using C = compute_t<T>;

  const T* data;
  int64_t height;
  int64_t width;
  int64_t row_stride;
  int64_t column_stride;

  C at(int64_t y, int64_t x) const {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    return inside ? load_element(data + y * row_stride + x * column_stride) : C(0);
  }
  C padded_at(C y, C x, const Sampling& sampling) const {
    return at(index_of(padded(y, height, sampling)), index_of(padded(x, width, sampling)));
  }
};

// The weights of the four neighbours of a place that lies `t` behind the second.
template <class C>
void cubic_weights(C t, C* weights) {
  const C a = C(-0.75);
  const auto near = [a](C x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [a](C x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  weights[0] = far(t + 1);
  weights[1] = near(t);
  weights[2] = near(1 - t);
  weights[3] = far(2 - t);
}

template <class T>
compute_t<T> sample(const Sampled<T>& plane, compute_t<T> grid_x, compute_t<T> grid_y,
                    const Sampling& sampling) {
  using C = compute_t<T>;
  C x = unnormalised(grid_x, plane.width, sampling.align_corners);
  C y = unnormalised(grid_y, plane.height, sampling.align_corners);
  if (sampling.interpolation == kBicubic) {
    const C left = std::floor(x);
    const C top = std::floor(y);
    C across[4];
    C down[4];
    cubic_weights<C>(x - left, across);
    cubic_weights<C>(y - top, down);
    C sum = 0;
    for (int i = 0; i < 4; ++i) {
      C row = 0;
      for (int j = 0; j < 4; ++j) {
        row += across[j] * plane.padded_at(top + C(i - 1), left + C(j - 1), sampling);
      }
      sum += down[i] * row;
    }
    return sum;
  }
  x = padded(x, plane.width, sampling);
  y = padded(y, plane.height, sampling);
  if (sampling.interpolation == kNearest) {
    return plane.at(index_of(std::nearbyint(y)), index_of(std::nearbyint(x)));
  }
  const C left = std::floor(x);
  const C top = std::floor(y);
  const C across = x - left;
  const C down = y - top;
  const int64_t i = index_of(top);
  const int64_t j = index_of(left);
  return plane.at(i, j) * (1 - down) * (1 - across) + plane.at(i, j + 1) * (1 - down) * across +
         plane.at(i + 1, j) * down * (1 - across) + plane.at(i + 1, j + 1) * down * across;
}

}  // namespace

namespace native {

Tensor& grid_sampler_2d_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& grid,
                            int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                            Tensor& out) {
  OPSMITH_CHECK(
      context, input.dim() == 4 && grid.dim() == 4, InvalidArgument, out,
      "grid_sampler(): expected 4D input and grid with same number of dimensions, but got input with %d and "
      "grid with %d dimensions",
      static_cast<int>(input.dim()), static_cast<int>(grid.dim()));
  OPSMITH_CHECK(context, input.sizes()[0] == grid.sizes()[0] && grid.sizes()[3] == 2, InvalidArgument, out,
                "grid_sampler(): expected grid to have size 2 in last dimension and input's batch size");
  OPSMITH_CHECK(context, input.sizes()[2] > 0 && input.sizes()[3] > 0, InvalidArgument, out,
                "grid_sampler(): expected input to have non-empty spatial dimensions");
  OPSMITH_CHECK(context,
                interpolation_mode >= 0 && interpolation_mode <= 2 && padding_mode >= 0 && padding_mode <= 2,
                InvalidArgument, out, "grid_sampler(): unknown interpolation or padding mode");
  OPSMITH_CHECK(context,
                input.scalar_type() == grid.scalar_type() && input.scalar_type() == out.scalar_type(),
                InvalidArgument, out, "grid_sampler(): expected input, grid and out to have one dtype");
  if (!resize(context, out, {input.sizes()[0], input.sizes()[1], grid.sizes()[1], grid.sizes()[2]}) ||
      out.numel() == 0) {
    return out;
  }
  const ByteFeatureMap from = feature_map_of(input, 2);
  const ByteFeatureMap to = feature_map_of(out, 2);
  const Sampling sampling{interpolation_mode, padding_mode, align_corners};
  with_dtype<kName>(context, Sampleable{}, input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    parallel(to.planes() * to.size[1], std::max<int64_t>(1, kGrain / 16 / to.size[2]),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 const int64_t plane = row / to.size[1];
                 const int64_t y = row % to.size[1];
                 const Sampled<T> source{reinterpret_cast<const T*>(from.data) + from.plane(plane),
                                         from.size[1], from.size[2], from.stride[1], from.stride[2]};
                 T* const destination = reinterpret_cast<T*>(to.data) + to.plane(plane) + y * to.stride[1];
                 const T* place = grid.const_data_ptr<T>() + plane / to.channels * grid.strides()[0] +
                                  y * grid.strides()[1];
                 for (int64_t x = 0; x < to.size[2]; ++x, place += grid.strides()[2]) {
                   store_element(destination + x * to.stride[2],
                                 sample<T>(source, load_element(place),
                                           load_element(place + grid.strides()[3]), sampling));
                 }
               }
             });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
