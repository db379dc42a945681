// Feature maps of another size: nearest, bilinear and antialiased, from the output's size or from scale
// factors.
#include <algorithm>
#include <cmath>
#include <optional>

#include "../../common/temporary.h"
#include "../../common/feature_map.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

using Factors = std::optional<ArrayRef<double>>;
using Sizes = std::optional<IntList>;

constexpr int64_t kPlane = 2;

// The size and scale that are asked of the two spatial dimensions.
struct Target {
  int64_t size[kPlane];
  std::optional<double> scale[kPlane];
};

bool target_of(KernelRuntimeContext& context, const Tensor& input, const Sizes& size, const Factors& factors,
               Target& target) {
  OPSMITH_CHECK(context, size.has_value() != factors.has_value(), InvalidArgument, false,
                "Must specify exactly one of output_size and scale_factors");
  OPSMITH_CHECK(context, input.dim() == 4, InvalidArgument, false,
                "It is expected input_size equals to 4, but got size %d", static_cast<int>(input.dim()));
  const size_t given = size.has_value() ? size->size() : factors->size();
  OPSMITH_CHECK(context, given == kPlane, InvalidArgument, false,
                "It is expected output_size and scale_factors of 2 numbers, but got %zu", given);
  for (int64_t d = 0; d < kPlane; ++d) {
    const double in = static_cast<double>(input.sizes()[2 + d]);
    target.size[d] = size.has_value() ? (*size)[d] : static_cast<int64_t>(in * (*factors)[d]);
    target.scale[d] = factors.has_value() ? std::optional<double>((*factors)[d]) : std::nullopt;
  }
  return true;
}

bool prepare(KernelRuntimeContext& context, const Tensor& input, const Target& target, Tensor& out) {
  OPSMITH_CHECK(context, input.dim() == 4, InvalidArgument, false,
                "It is expected input_size equals to 4, but got size %d", static_cast<int>(input.dim()));
  OPSMITH_CHECK(context, contains(Real{}, input.scalar_type()), NotSupported, false,
                "upsampling is not implemented for '%s'", name_of(input.scalar_type()));
  if (!same_dtype(context, input, out)) {
    return false;
  }
  const int64_t height = input.sizes()[2];
  const int64_t width = input.sizes()[3];
  OPSMITH_CHECK(context, height > 0 && width > 0 && target.size[0] > 0 && target.size[1] > 0, InvalidArgument,
                false,
                "Input and output sizes should be greater than 0, but got input (H: %" PRId64 ", W: %" PRId64
                ") output (H: %" PRId64 ", W: %" PRId64 ")",
                height, width, target.size[0], target.size[1]);
  return resize(context, out, {input.sizes()[0], input.sizes()[1], target.size[0], target.size[1]}) &&
         one_layout(context, {&out, &input});
}

// Elements of the input per element of the output.
template <class C>
C ratio(int64_t in, int64_t out, bool align_corners, const std::optional<double>& scale) {
  if (align_corners) {
    return out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
  }
  return scale.has_value() && *scale > 0 ? static_cast<C>(1.0 / *scale)
                                         : static_cast<C>(in) / static_cast<C>(out);
}

Tensor& nearest(KernelRuntimeContext& context, const Tensor& input, const Target& target, Tensor& out) {
  if (!prepare(context, input, target, out) || out.numel() == 0) {
    return out;
  }
  const ByteFeatureMap from = feature_map_of(input, kPlane);
  const ByteFeatureMap to = feature_map_of(out, kPlane);
  const auto offsets = temporary<int64_t>(context, to.size[1] + to.size[2]);
  if (offsets == nullptr) {
    return out;
  }
  // The offset of each row and column that an output's row and column shows. Double is calculated as such.
  int64_t* next = offsets;
  for (int64_t d = 0; d < kPlane; ++d) {
    const int64_t in = from.size[1 + d];
    const bool wide = input.scalar_type() == ScalarType::Double;
    const double exact = ratio<double>(in, target.size[d], false, target.scale[d]);
    const float single = ratio<float>(in, target.size[d], false, target.scale[d]);
    for (int64_t i = 0; i < target.size[d]; ++i) {
      const double place = wide ? exact * static_cast<double>(i) : single * static_cast<float>(i);
      *next++ = std::min(static_cast<int64_t>(std::floor(place)), in - 1) * from.stride[1 + d];
    }
  }
  const int64_t* const rows = offsets;
  const int64_t* const columns = offsets + to.size[1];
  with_width(input.element_size(), [&](auto element) {
    using U = decltype(element);
    parallel(to.planes() * to.size[1], grain_size(to.size[2]), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t plane = row / to.size[1];
        const int64_t y = row % to.size[1];
        const U* const source = reinterpret_cast<const U*>(from.data) + from.plane(plane) + rows[y];
        U* const destination = reinterpret_cast<U*>(to.data) + to.plane(plane) + y * to.stride[1];
        for (int64_t x = 0; x < to.size[2]; ++x) {
          destination[x * to.stride[2]] = source[columns[x]];
        }
      }
    });
  });
  return out;
}

// The two neighbours of an output's index and how much of the second one it takes.
template <class C>
struct Blend {
  int64_t first;   // offset
  int64_t second;  // offset
  C share;
};

template <class C>
void fill_blends(int64_t in, int64_t out, int64_t stride, bool align_corners,
                 const std::optional<double>& scale, Blend<C>* blends) {
  // As ATen's CPU, which copies a dimension that keeps its size, whatever its scale is said to be.
  const C step = in == out ? C(1) : ratio<C>(in, out, align_corners, scale);
  for (int64_t i = 0; i < out; ++i) {
    const C middle = step * (static_cast<C>(i) + C(0.5)) - C(0.5);
    const C place = align_corners ? step * static_cast<C>(i) : std::max(middle, C(0));
    const int64_t first = std::min(static_cast<int64_t>(place), in - 1);
    const C share = std::min(std::max(place - static_cast<C>(first), C(0)), C(1));
    blends[i] = {first * stride, std::min(first + 1, in - 1) * stride, share};
  }
}

// Integers, of ExecuTorch's programs, are blended as Float and cut off.
template <class T>
using blended_t = std::conditional_t<std::is_integral_v<T>, float, compute_t<T>>;

template <class T>
[[gnu::noinline]] void blend(KernelRuntimeContext& context, const ByteFeatureMap& from,
                             const ByteFeatureMap& to, const Target& target, bool align_corners) {
  using C = blended_t<T>;
  const auto value = [](const T* p) { return static_cast<C>(load_element(p)); };
  const auto blends = temporary<Blend<C>>(context, to.size[1] + to.size[2]);
  if (blends == nullptr) {
    return;
  }
  const Blend<C>* const rows = blends;
  const Blend<C>* const columns = blends + to.size[1];
  fill_blends<C>(from.size[1], to.size[1], from.stride[1], align_corners, target.scale[0], blends);
  fill_blends<C>(from.size[2], to.size[2], from.stride[2], align_corners, target.scale[1],
                 blends + to.size[1]);
  parallel(to.planes() * to.size[1], grain_size(to.size[2]), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t plane = row / to.size[1];
      const int64_t y = row % to.size[1];
      const T* const source = reinterpret_cast<const T*>(from.data) + from.plane(plane);
      const T* const upper = source + rows[y].first;
      const T* const lower = source + rows[y].second;
      const C down = rows[y].share;
      T* const destination = reinterpret_cast<T*>(to.data) + to.plane(plane) + y * to.stride[1];
      for (int64_t x = 0; x < to.size[2]; ++x) {
        const Blend<C>& at = columns[x];
        const C top = value(upper + at.first) * (C(1) - at.share) + value(upper + at.second) * at.share;
        const C bottom = value(lower + at.first) * (C(1) - at.share) + value(lower + at.second) * at.share;
        store_element(destination + x * to.stride[2], top * (C(1) - down) + bottom * down);
      }
    }
  });
}

constexpr char kBilinear[] = "upsample_bilinear2d.out";
constexpr char kBilinearVec[] = "upsample_bilinear2d.vec_out";

template <const char* Name>
Tensor& bilinear(KernelRuntimeContext& context, const Tensor& input, const Target& target, bool align_corners,
                 Tensor& out) {
  if (prepare(context, input, target, out) && out.numel() != 0) {
    with_dtype<Name>(context, Real{}, input.scalar_type(), [&](auto type) {
      blend<typename decltype(type)::type>(context, feature_map_of(input, kPlane),
                                           feature_map_of(out, kPlane), target, align_corners);
    });
  }
  return out;
}

// The elements of the input that one of the output is the weighted mean of, along a dimension.
struct Taps {
  int64_t first;
  int64_t count;
};

template <class C>
struct Filter {
  int64_t most;  // taps of an element
  Temporary<Taps> taps;
  Temporary<C> weights;  // [elements of the output][most]
  C unit = 1;            // what the weights of an element come to
};

// Weights of Byte are whole numbers of 16 bits, as ATen's are: its results are the same then.
template <class C>
void make_whole(Filter<C>& filter, int64_t out) {
  constexpr C kLimit = 1 << 15;
  constexpr C kMostUnit = 1 << 22;
  C* const end = filter.weights + out * filter.most;
  const C largest = *std::max_element(filter.weights.get(), end);
  while (filter.unit < kMostUnit && std::floor(C(0.5) + largest * filter.unit * 2) < kLimit) {
    filter.unit *= 2;
  }
  std::transform(filter.weights.get(), end, filter.weights.get(),
                 [&](C weight) { return std::floor(C(0.5) + weight * filter.unit); });
}

// A triangle over each element of the output, as wide as the elements of the input that it covers.
template <class C>
bool fill_filter(KernelRuntimeContext& context, int64_t in, int64_t out, bool align_corners,
                 const std::optional<double>& scale, Filter<C>& filter) {
  const C step = ratio<C>(in, out, align_corners, scale);
  const C reach = std::max(step, C(1));
  const C inverse = C(1) / reach;
  OPSMITH_CHECK(context, reach < static_cast<C>(int64_t{1} << 31), InvalidArgument, false,
                "upsampling by a scale of %g is not supported", 1 / static_cast<double>(step));
  filter.most = static_cast<int64_t>(std::ceil(reach)) * 2 + 1;
  filter.taps = temporary<Taps>(context, out);
  filter.weights =
      filter.taps == nullptr ? Temporary<C>() : temporary<C>(context, Checked{out} * filter.most);
  if (filter.weights == nullptr) {
    return false;
  }
  for (int64_t i = 0; i < out; ++i) {
    const C center = static_cast<C>(static_cast<double>(step) * (static_cast<double>(i) + 0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - reach + C(0.5)), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + reach + C(0.5)), in);
    const int64_t count = std::clamp<int64_t>(end - first, 0, filter.most);
    C* const weights = filter.weights + i * filter.most;
    C total = 0;
    for (int64_t j = 0; j < count; ++j) {
      const C distance = (static_cast<C>(first + j) - center + C(0.5)) * inverse;
      weights[j] = std::max(C(1) - std::fabs(distance), C(0));
      total += weights[j];
    }
    for (int64_t j = 0; total != 0 && j < count; ++j) {
      weights[j] /= total;
    }
    std::fill(weights + count, weights + filter.most, C(0));
    filter.taps[i] = {first, count};
  }
  return true;
}

// f(line, x) of the elements of `count` lines of `length`, in threads.
template <class F>
void for_lines(int64_t count, int64_t length, int64_t taps, const F& f) {
  parallel(count, grain_size(length * taps), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t x = 0; x < length; ++x) {
        f(line, x);
      }
    }
  });
}

// Rows are filtered first, then columns of what they come to.
template <class T>
[[gnu::noinline]] void antialias(KernelRuntimeContext& context, const ByteFeatureMap& from,
                                 const ByteFeatureMap& to, const Target& target, bool align_corners) {
  constexpr bool kIsByte = std::is_same_v<T, uint8_t>;
  using C = std::conditional_t<kIsByte, double, blended_t<T>>;
  const int64_t width = to.size[2];
  Filter<C> rows, columns;
  const auto narrow = temporary<C>(context, from.size[1] * width);
  const auto fill = [&](int64_t d, Filter<C>& filter) {
    const int64_t in = from.size[d + 1], out = to.size[d + 1];
    // ATen leaves a dimension of Byte as it is whose size does not change, whatever its scale.
    const auto scale = kIsByte && in == out ? std::nullopt : target.scale[d];
    return fill_filter<C>(context, in, out, align_corners, scale, filter);
  };
  if (narrow == nullptr || !fill(0, rows) || !fill(1, columns)) {
    return;
  }
  if constexpr (kIsByte) {
    make_whole(rows, to.size[1]);
    make_whole(columns, width);
  }
  const auto filtered = [](const Filter<C>& filter, int64_t i, const auto& value) {
    const auto [first, count] = filter.taps[i];
    const C* const weights = filter.weights + i * filter.most;
    C sum = kIsByte ? filter.unit / 2 : 0;
    for (int64_t j = 0; j < count; ++j) {
      sum += value(first + j) * weights[j];
    }
    return kIsByte ? std::clamp<C>(std::floor(sum / filter.unit), 0, 255) : sum;
  };
  for (int64_t plane = 0; plane < to.planes(); ++plane) {
    const T* const source = reinterpret_cast<const T*>(from.data) + from.plane(plane);
    T* const destination = reinterpret_cast<T*>(to.data) + to.plane(plane);
    for_lines(from.size[1], width, columns.most, [&](int64_t y, int64_t x) {
      narrow[y * width + x] = filtered(columns, x, [=, &from](int64_t at) {
        return static_cast<C>(load_element(source + y * from.stride[1] + at * from.stride[2]));
      });
    });
    for_lines(to.size[1], width, rows.most, [&](int64_t y, int64_t x) {
      store_element(destination + y * to.stride[1] + x * to.stride[2],
                    filtered(rows, y, [&](int64_t at) { return narrow[at * width + x]; }));
    });
  }
}

using Antialiased = Types<float, double, Half, BFloat16, uint8_t>;
constexpr char kAntialiased[] = "_upsample_bilinear2d_aa.out";

bool plain_target(KernelRuntimeContext& context, IntList output_size, std::optional<double> scales_h,
                  std::optional<double> scales_w, Target& target) {
  OPSMITH_CHECK(context, output_size.size() == kPlane, InvalidArgument, false,
                "It is expected output_size equals to 2, but got size %zu", output_size.size());
  target = {{output_size[0], output_size[1]}, {scales_h, scales_w}};
  return true;
}

}  // namespace

namespace native {

Tensor& upsample_nearest2d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                               std::optional<double> scales_h, std::optional<double> scales_w, Tensor& out) {
  Target target;
  return plain_target(context, output_size, scales_h, scales_w, target) ? nearest(context, self, target, out)
                                                                        : out;
}

Tensor& upsample_nearest2d_vec_out(KernelRuntimeContext& context, const Tensor& input, Sizes output_size,
                                   Factors scale_factors, Tensor& out) {
  Target target;
  return target_of(context, input, output_size, scale_factors, target) ? nearest(context, input, target, out)
                                                                       : out;
}

Tensor& upsample_bilinear2d_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                bool align_corners, std::optional<double> scales_h,
                                std::optional<double> scales_w, Tensor& out) {
  Target target;
  return plain_target(context, output_size, scales_h, scales_w, target)
             ? bilinear<kBilinear>(context, self, target, align_corners, out)
             : out;
}

// Integers but Byte are refused: the runtime's kernel cuts each term of a mean off, and gives something else.
Tensor& upsample_bilinear2d_aa_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                                   bool align_corners, std::optional<double> scales_h,
                                   std::optional<double> scales_w, Tensor& out) {
  Target target;
  if (!plain_target(context, output_size, scales_h, scales_w, target)) {
    return out;
  }
  if (self.dim() == 4) {
    const Dims sizes{self.sizes()[0], self.sizes()[1], target.size[0], target.size[1]};
    OPSMITH_CHECK(
        context, sizes_of(out) == sizes, InvalidArgument, out,
        "%s: out must have the sizes of the result: as the runtime's kernel, this one never resizes",
        kAntialiased);
  }
  if (prepare(context, self, target, out) && out.numel() != 0) {
    with_dtype<kAntialiased>(context, Antialiased{}, self.scalar_type(), [&](auto type) {
      antialias<typename decltype(type)::type>(context, feature_map_of(self, kPlane),
                                               feature_map_of(out, kPlane), target, align_corners);
    });
  }
  return out;
}

Tensor& upsample_bilinear2d_vec_out(KernelRuntimeContext& context, const Tensor& input, Sizes output_size,
                                    bool align_corners, Factors scale_factors, Tensor& out) {
  Target target;
  return target_of(context, input, output_size, scale_factors, target)
             ? bilinear<kBilinearVec>(context, input, target, align_corners, out)
             : out;
}

}  // namespace native
}  // namespace opsmith::portable
