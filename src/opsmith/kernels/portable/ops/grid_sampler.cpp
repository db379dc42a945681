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

struct Sampling {
  int64_t interpolation;
  int64_t padding;
  bool align_corners;
};

// Everything is calculated in the elements' own dtype, as ATen and ExecuTorch do: Half and BFloat16 are
// rounded at each step, which decides the pixels that are read, and places among integers, which ExecuTorch
// takes, are integers.
template <class C>
C number(int64_t n) {
  return static_cast<C>(static_cast<compute_t<C>>(n));
}
template <class C>
compute_t<C> wide(C value) {
  return static_cast<compute_t<C>>(value);
}

template <class C>
C clipped(C place, int64_t size) {
  return std::min(number<C>(size - 1), std::max(place, C(0)));
}

// The place between `low` and `high`, both given twice over, that reflecting at them leads to.
template <class C>
C reflected(C place, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) {
    return C(0);
  }
  const C low = static_cast<C>(number<C>(twice_low) / 2);
  const C span = static_cast<C>(number<C>(twice_high - twice_low) / 2);
  const C distance = static_cast<C>(std::fabs(wide<C>(place - low)));
  const C extra = static_cast<C>(std::fmod(wide(distance), wide(span)));
  const bool forward = std::fmod(std::floor(wide<C>(distance / span)), compute_t<C>(2)) == 0;
  return static_cast<C>(forward ? extra + low : span - extra + low);
}

template <class C>
C unnormalised(C place, int64_t size, bool align_corners) {
  return static_cast<C>(align_corners ? (place + 1) / 2 * number<C>(size - 1)
                                      : ((place + 1) * number<C>(size) - 1) / 2);
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
  const double exact = static_cast<double>(wide(place));
  return exact >= -1e9 && exact <= 1e9 ? static_cast<int64_t>(exact) : -1000000000;
}

template <class T>
struct Sampled {
  const T* data;
  int64_t height;
  int64_t width;
  int64_t row_stride;
  int64_t column_stride;

  T at(int64_t y, int64_t x) const {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    return inside ? data[y * row_stride + x * column_stride] : T(0);
  }
  T padded_at(T y, T x, const Sampling& sampling) const {
    return at(index_of(padded(y, height, sampling)), index_of(padded(x, width, sampling)));
  }
};

// The weights of the four neighbours of a place that lies `t` behind the second.
template <class C>
void cubic_weights(C t, C* weights) {
  const C a = C(-0.75f);
  const auto near = [a](C x) { return static_cast<C>(((a + 2) * x - (a + 3)) * x * x + 1); };
  const auto far = [a](C x) { return static_cast<C>(((a * x - 5 * a) * x + 8 * a) * x - 4 * a); };
  weights[0] = far(static_cast<C>(t + 1));
  weights[1] = near(t);
  weights[2] = near(static_cast<C>(1 - t));
  weights[3] = far(static_cast<C>(2 - t));
}

template <class T>
T floor_of(T place) {
  return static_cast<T>(std::floor(wide(place)));
}

template <class T>
T sample(const Sampled<T>& plane, T grid_x, T grid_y, const Sampling& sampling) {
  T x = unnormalised(grid_x, plane.width, sampling.align_corners);
  T y = unnormalised(grid_y, plane.height, sampling.align_corners);
  if (sampling.interpolation == kBicubic) {
    const T left = floor_of(x);
    const T top = floor_of(y);
    T across[4];
    T down[4];
    cubic_weights<T>(static_cast<T>(x - left), across);
    cubic_weights<T>(static_cast<T>(y - top), down);
    T sum = T(0);
    for (int i = 0; i < 4; ++i) {
      T row = T(0);
      for (int j = 0; j < 4; ++j) {
        row = static_cast<T>(row + across[j] * plane.padded_at(static_cast<T>(top + number<T>(i - 1)),
                                                               static_cast<T>(left + number<T>(j - 1)),
                                                               sampling));
      }
      sum = static_cast<T>(sum + down[i] * row);
    }
    return sum;
  }
  x = padded(x, plane.width, sampling);
  y = padded(y, plane.height, sampling);
  if (sampling.interpolation == kNearest) {
    return plane.at(index_of(std::nearbyint(wide(y))), index_of(std::nearbyint(wide(x))));
  }
  const T left = floor_of(x);
  const T top = floor_of(y);
  const T across = static_cast<T>(x - left);
  const T down = static_cast<T>(y - top);
  const T before = static_cast<T>(1 - across);
  const T above = static_cast<T>(1 - down);
  const int64_t i = index_of(top);
  const int64_t j = index_of(left);
  return static_cast<T>(plane.at(i, j) * above * before + plane.at(i, j + 1) * above * across +
                        plane.at(i + 1, j) * down * before + plane.at(i + 1, j + 1) * down * across);
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
  with_dtype<kName>(context, Real{}, input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    parallel(to.planes() * to.size[1], grain_size(16 * to.size[2]), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t plane = row / to.size[1];
        const int64_t y = row % to.size[1];
        const Sampled<T> source{reinterpret_cast<const T*>(from.data) + from.plane(plane), from.size[1],
                                from.size[2], from.stride[1], from.stride[2]};
        T* const destination = reinterpret_cast<T*>(to.data) + to.plane(plane) + y * to.stride[1];
        const T* place =
            grid.const_data_ptr<T>() + plane / to.channels * grid.strides()[0] + y * grid.strides()[1];
        for (int64_t x = 0; x < to.size[2]; ++x, place += grid.strides()[2]) {
          destination[x * to.stride[2]] = sample<T>(source, place[0], place[grid.strides()[3]], sampling);
        }
      }
    });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
