// Operators that put the elements of one tensor into another order or several times: repeat, flip,
// pixel_shuffle, pixel_unshuffle, roll. Each is a strided copy, or a few of them.
#include <optional>

#include "../movement.h"

namespace opsmith::portable::native {
namespace {

bool shuffled_sizes(KernelRuntimeContext& context, const Tensor& self, int64_t factor, bool into_map,
                    Dims& sizes) {
  const char* const name = into_map ? "pixel_shuffle" : "pixel_unshuffle";
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, rank >= 3, InvalidArgument, false,
                "%s expects input to have at least 3 dimensions, but got input with %" PRId64 " dimension(s)",
                name, rank);
  OPSMITH_CHECK(context, rank + 2 <= kMaxDims, NotSupported, false, "%s: too many dimensions", name);
  OPSMITH_CHECK(context, factor > 0, InvalidArgument, false, "%s expects a positive factor, but got %" PRId64,
                name, factor);
  sizes = sizes_of(self);
  int64_t& channels = sizes[rank - 3];
  int64_t& height = sizes[rank - 2];
  int64_t& width = sizes[rank - 1];
  if (into_map) {
    // A factor beyond the channels divides them only if there are none, and its square may not fit.
    const Checked square = Checked(factor) * factor, rows = Checked(height) * factor,
                  columns = Checked(width) * factor;
    OPSMITH_CHECK(context, square.fits() && rows.fits() && columns.fits(), InvalidArgument, false,
                  "pixel_shuffle: a map %" PRId64 " times as large goes beyond 64 bits", factor);
    OPSMITH_CHECK(context, channels % square.value() == 0, InvalidArgument, false,
                  "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                  "upscale_factor, but input.size(-3)=%" PRId64 " is not divisible by %" PRId64,
                  channels, square.value());
    channels /= square.value();
    height = rows.value();
    width = columns.value();
  } else if (self.numel() > 0) {  // ATen gives back an empty map as it is
    OPSMITH_CHECK(context, height % factor == 0 && width % factor == 0, InvalidArgument, false,
                  "pixel_unshuffle expects height and width to be divisible by downscale_factor, but got "
                  "%" PRId64 " x %" PRId64 " and %" PRId64,
                  height, width, factor);
    channels *= factor * factor;
    height /= factor;
    width /= factor;
  }
  return true;
}

// pixel_shuffle moves a factor of the channels into the feature map, pixel_unshuffle back; `out` shows the
// same elements as a tensor of rank + 2, (..., c, r, r, h, w) on the side of the channels and (..., c, h, r,
// w, r) on the side of the map.
Tensor& shuffle(KernelRuntimeContext& context, const Tensor& self, int64_t factor, bool into_map,
                Tensor& out) {
  const int64_t rank = self.dim();
  Dims sizes;
  if (!shuffled_sizes(context, self, factor, into_map, sizes)) {
    return out;
  }
  if (!same_dtype(context, self, out) || !resize(context, out, sizes) ||
      !one_layout(context, {&out, &self}) || self.numel() == 0) {
    return out;
  }
  Source from = source_of(self);
  Destination to = destination_of(out);
  // Both strided as (..., c, r, r, h, w).
  Dims common = sizes_of(into_map ? self : out);
  common[rank - 3] /= factor * factor;
  common.insert(rank - 2, factor);
  common.insert(rank - 2, factor);
  const auto split_channels = [&](Dims& strides) {
    const int64_t stride = strides[rank - 3];
    strides[rank - 3] = stride * factor * factor;
    strides.insert(rank - 2, stride);
    strides.insert(rank - 2, stride * factor);
  };
  const auto split_map = [&](Dims& strides) {
    const int64_t h = strides[rank - 2];
    const int64_t w = strides[rank - 1];
    strides[rank - 2] = h * factor;
    strides[rank - 1] = w * factor;
    strides.insert(rank - 2, w);
    strides.insert(rank - 2, h);
  };
  if (into_map) {
    split_channels(from.strides);
    split_map(to.strides);
  } else {
    split_map(from.strides);
    split_channels(to.strides);
  }
  copy_strided(common, self.element_size(), from, to);
  return out;
}

}  // namespace

Tensor& flip_out(KernelRuntimeContext& context, const Tensor& self, IntList dims, Tensor& out) {
  Source from = source_of(self);
  DimSet flipped;
  if (!named_dims(context, dims, self.dim(), flipped)) {
    return out;
  }
  if (!same_dtype(context, self, out) || !resize(context, out, sizes_of(self)) ||
      !one_layout(context, {&out, &self}) || self.numel() == 0) {
    return out;
  }
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (contains(flipped, d)) {
      from.data += (self.sizes()[d] - 1) * from.strides[d] * self.element_size();
      from.strides[d] = -from.strides[d];
    }
  }
  copy_strided(sizes_of(self), self.element_size(), from, destination_of(out));
  return out;
}

// Each place as often as `repeats` says: 0, 0, 1, 1, 1 for [2, 3].
Tensor& repeat_interleave_tensor_out(KernelRuntimeContext& context, const Tensor& repeats,
                                     std::optional<int64_t> output_size, Tensor& out) {
  const bool is_long = repeats.scalar_type() == ScalarType::Long;
  OPSMITH_CHECK(context, repeats.dim() == 1, InvalidArgument, out,
                "repeat_interleave only accept 1D vector as repeat");
  OPSMITH_CHECK(context, is_long || repeats.scalar_type() == ScalarType::Int, InvalidArgument, out,
                "repeats has to be Long or Int tensor");
  if (!same_dtype(context, repeats, out) || !are_contiguous(context, {&repeats})) {
    return out;
  }
  const auto count_at = [&](int64_t i) -> int64_t {
    return is_long ? repeats.const_data_ptr<int64_t>()[i] : repeats.const_data_ptr<int32_t>()[i];
  };
  Checked sum = 0;
  for (int64_t i = 0; i < repeats.numel(); ++i) {
    OPSMITH_CHECK(context, count_at(i) >= 0, InvalidArgument, out, "repeats can not be negative");
    sum = sum + count_at(i);
  }
  const int64_t total = sum.value();
  OPSMITH_CHECK(context, sum.fits(), InvalidArgument, out, "repeats add up to more than 64 bits hold");
  OPSMITH_CHECK(context, !output_size.has_value() || *output_size == total, InvalidArgument, out,
                "allocated size does not match required size");
  if (!resize(context, out, {total})) {
    return out;
  }
  int64_t place = 0;
  for (int64_t i = 0; i < repeats.numel(); ++i) {
    for (int64_t k = 0; k < count_at(i); ++k, ++place) {
      if (is_long) {
        out.mutable_data_ptr<int64_t>()[place] = i;
      } else {
        out.mutable_data_ptr<int32_t>()[place] = static_cast<int32_t>(i);
      }
    }
  }
  return out;
}

Tensor& repeat_out(KernelRuntimeContext& context, const Tensor& self, IntList repeats, Tensor& out) {
  const int64_t rank = static_cast<int64_t>(repeats.size());
  OPSMITH_CHECK(context, rank >= self.dim(), InvalidArgument, out,
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  OPSMITH_CHECK(context, rank + self.dim() <= kMaxDims, NotSupported, out,
                "repeat: at most %" PRId64 " dimensions of self and repeats together", kMaxDims);
  // Dimension i is copied as (repeats[i], size[i]), the former with stride 0 in self.
  const int64_t added = rank - self.dim();
  const Source whole = source_of(self);
  Dims sizes;
  Dims dims;
  Source from{whole.data, {}};
  Destination to{static_cast<char*>(out.mutable_data_ptr()), {}};
  OPSMITH_CHECK(context, out.dim() == rank, InvalidArgument, out,
                "out has %" PRId64 " dimensions, and the result has %" PRId64,
                static_cast<int64_t>(out.dim()), rank);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t size = i < added ? 1 : self.sizes()[i - added];
    const Checked repeated = Checked(size) * repeats[i];
    OPSMITH_CHECK(context, repeated.fits(), InvalidArgument, out, "repeat: a size goes beyond 64 bits");
    OPSMITH_CHECK(context, repeated.value() >= 0, InvalidArgument, out,
                  "Trying to create tensor with negative dimension %" PRId64, repeated.value());
    sizes.push_back(repeated.value());
  }
  if (!same_dtype(context, self, out) || !resize(context, out, sizes)) {
    return out;
  }
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t stride = out.strides()[i];
    if (i >= added) {
      dims.push_back(self.sizes()[i - added]);
      from.strides.push_back(whole.strides[i - added]);
      to.strides.push_back(stride);
    }
    dims.push_back(repeats[i]);
    from.strides.push_back(0);
    to.strides.push_back(stride * (i < added ? 1 : self.sizes()[i - added]));
  }
  copy_strided(dims, self.element_size(), from, to);
  return out;
}

Tensor& pixel_shuffle_out(KernelRuntimeContext& context, const Tensor& self, int64_t upscale_factor,
                          Tensor& out) {
  return shuffle(context, self, upscale_factor, true, out);
}

Tensor& pixel_unshuffle_out(KernelRuntimeContext& context, const Tensor& self, int64_t downscale_factor,
                            Tensor& out) {
  return shuffle(context, self, downscale_factor, false, out);
}

Tensor& roll_out(KernelRuntimeContext& context, const Tensor& self, IntList shifts, IntList dims,
                 Tensor& out) {
  // Without dims the shift is along all elements in order, which needs both to lie so: the manifest says it.
  const bool flat = dims.empty() && shifts.size() == 1 && !in_executorch();
  OPSMITH_CHECK(context, flat || shifts.size() == dims.size(), InvalidArgument, out,
                "shifts and dimensions must align. shifts: %zu, dims:%zu", shifts.size(), dims.size());
  if (!same_dtype(context, self, out) || !resize(context, out, sizes_of(self)) ||
      !one_layout(context, {&out, &self}) || (flat && !are_contiguous(context, {&self, &out})) ||
      self.numel() == 0) {
    return out;
  }
  Dims sizes = flat ? Dims{self.numel()} : sizes_of(self);
  const Dims strides = flat ? Dims{1} : strides_of(self);
  const Dims out_strides = flat ? Dims{1} : strides_of(out);
  Dims shift = sizes;
  for (int64_t i = 0; i < sizes.rank; ++i) {
    shift[i] = 0;
  }
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t d = flat ? 0 : wrap_dim(context, dims[i], self.dim());
    if (d < 0) {
      return out;
    }
    if (sizes.rank != 0) {
      shift[d] = (shift[d] + shifts[i] % sizes[d] + sizes[d]) % sizes[d];
    }
  }
  // Each shifted dimension falls in two parts, so all of them in a power of two: one copy for each.
  const int64_t width = self.element_size();
  for (int64_t part = 0; part < (int64_t(1) << sizes.rank); ++part) {
    Dims extent = sizes;
    Source from{static_cast<const char*>(self.const_data_ptr()), strides};
    Destination to{static_cast<char*>(out.mutable_data_ptr()), out_strides};
    for (int64_t i = 0; i < sizes.rank; ++i) {
      const bool wraps = (part >> i & 1) != 0;  // the end of self, which comes first in out
      extent[i] = wraps ? shift[i] : sizes[i] - shift[i];
      from.data += wraps ? (sizes[i] - shift[i]) * strides[i] * width : 0;
      to.data += wraps ? 0 : shift[i] * out_strides[i] * width;
    }
    copy_strided(extent, width, from, to);
  }
  return out;
}

}  // namespace opsmith::portable::native
