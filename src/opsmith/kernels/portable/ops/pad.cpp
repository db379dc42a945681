// Padding: with a constant, and by reflecting or repeating the edge. Negative padding takes elements away.
#include <algorithm>

#include "../../common/temporary.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

// Where element i of the padded dimension comes from, i counted from the first element of self.
using SourceIndex = int64_t (*)(int64_t i, int64_t size);

int64_t reflected(int64_t i, int64_t size) {
  return i < 0 ? -i : i >= size ? 2 * size - 2 - i : i;
}

int64_t repeated(int64_t i, int64_t size) {
  return i < 0 ? 0 : i >= size ? size - 1 : i;
}

// The sizes of self with its last `Spatial` dimensions padded; padding has two numbers for each, the last
// dimension's first. self may come without the batch dimension.
template <int64_t Spatial>
bool padded_sizes(KernelRuntimeContext& context, const char* name, const Tensor& self, IntList padding,
                  bool reflect, Dims& sizes) {
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, static_cast<int64_t>(padding.size()) == 2 * Spatial, InvalidArgument, false,
                "padding size is expected to be %d, but got: %zu", static_cast<int>(2 * Spatial),
                padding.size());
  OPSMITH_CHECK(context, rank == Spatial + 1 || rank == Spatial + 2, InvalidArgument, false,
                "%s expects an input of %d or %d dimensions, but got %d", name, static_cast<int>(Spatial + 1),
                static_cast<int>(Spatial + 2), static_cast<int>(rank));
  sizes = sizes_of(self);
  bool has_size = false;  // in one dimension, as ATen asks
  for (int64_t s = 0; s < Spatial; ++s) {
    const int64_t d = rank - 1 - s;
    const int64_t size = sizes[d];
    const int64_t before = padding[2 * s];
    const int64_t after = padding[2 * s + 1];
    OPSMITH_CHECK(context, size > 0, InvalidArgument, false,
                  "%s: expected a non-zero size of dimension %" PRId64 " of the input", name, d);
    OPSMITH_CHECK(
        context, !reflect || (before < size && after < size), InvalidArgument, false,
        "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
        "(%" PRId64 ", %" PRId64 ") at dimension %" PRId64 " of input with size %" PRId64,
        before, after, d, size);
    const Checked padded = Checked(size) + before + after;
    OPSMITH_CHECK(context, padded.fits(), InvalidArgument, false, "%s: padding goes beyond 64 bits", name);
    sizes[d] = padded.value();
    has_size = has_size || sizes[d] >= 1;
    OPSMITH_CHECK(context, sizes[d] >= 0 && (has_size || s + 1 < Spatial), InvalidArgument, false,
                  "input (size %" PRId64 " at dimension %" PRId64
                  ") is too small: the padded size is %" PRId64,
                  size, d, sizes[d]);
  }
  return true;
}

template <int64_t Spatial>
Tensor& pad_edges(KernelRuntimeContext& context, const char* name, const Tensor& self, IntList padding,
                  bool reflect, Tensor& out) {
  const int64_t rank = self.dim();
  Dims sizes;
  OPSMITH_CHECK(
      context,
      contains(RealB{}, self.scalar_type()) || executorch::runtime::isComplexType(self.scalar_type()),
      NotSupported, out, "\"%s.out\" not implemented for '%s'", name, name_of(self.scalar_type()));
  if (!padded_sizes<Spatial>(context, name, self, padding, reflect, sizes)) {
    return out;
  }
  if (!same_dtype(context, self, out) || !resize(context, out, sizes) ||
      !one_layout(context, {&out, &self})) {
    return out;
  }
  int64_t table_size = 0;
  for (int64_t s = 0; s < Spatial; ++s) {
    table_size += sizes[rank - 1 - s];
  }
  const auto tables = temporary<int64_t>(context, table_size);
  if (tables == nullptr || out.numel() == 0) {
    return out;
  }
  // For each padded dimension, the offset in self of every index.
  const SourceIndex source_index = reflect ? reflected : repeated;
  const int64_t* offsets[Spatial];
  int64_t* table = tables;
  for (int64_t s = 0; s < Spatial; ++s) {
    const int64_t d = rank - 1 - s;
    offsets[s] = table;
    for (int64_t i = 0; i < sizes[d]; ++i) {
      *table++ = source_index(i - padding[2 * s], self.sizes()[d]) * self.strides()[d];
    }
  }
  Dims rows = sizes;
  --rows.rank;
  const int64_t length = sizes[rank - 1];
  const Dims from_strides = strides_of(self);
  const Dims to_strides = strides_of(out);
  with_width(self.element_size(), [&](auto element) {
    using U = decltype(element);
    for_each_place(rows, kGrain / length, [&](const Dims& at) {
      const U* from = static_cast<const U*>(self.const_data_ptr());
      U* to = static_cast<U*>(out.mutable_data_ptr());
      for (int64_t i = 0; i < rows.rank; ++i) {
        const int64_t s = rank - 1 - i;
        from += s < Spatial ? offsets[s][at[i]] : at[i] * from_strides[i];
        to += at[i] * to_strides[i];
      }
      const int64_t step = to_strides[rank - 1];
      for (int64_t x = 0; x < length; ++x) {
        to[x * step] = from[offsets[0][x]];
      }
    });
  });
  return out;
}

}  // namespace

namespace native {

Tensor& constant_pad_nd_out(KernelRuntimeContext& context, const Tensor& self, IntList pad,
                            const Scalar& value, Tensor& out) {
  const int64_t rank = self.dim();
  const int64_t padded = static_cast<int64_t>(pad.size()) / 2;
  OPSMITH_CHECK(context, pad.size() % 2 == 0, InvalidArgument, out,
                "Length of pad must be even but instead it equals %zu", pad.size());
  OPSMITH_CHECK(
      context, padded <= rank, InvalidArgument, out,
      "Length of pad should be no more than twice the number of dimensions of the input. Pad length is %zu "
      "while the input has %" PRId64 " dimensions.",
      pad.size(), rank);
  Dims sizes = sizes_of(self);
  Dims kept = sizes;
  Source from = source_of(self);
  int64_t origin = 0;
  const int64_t width = self.element_size();
  Dims before = sizes;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t s = rank - 1 - d;
    before[d] = s < padded ? pad[2 * s] : 0;
    const int64_t after = s < padded ? pad[2 * s + 1] : 0;
    const Checked size = Checked(sizes[d]) + before[d] + after;
    const Checked left = Checked(sizes[d]) + std::min<int64_t>(before[d], 0) + std::min<int64_t>(after, 0);
    OPSMITH_CHECK(context, size.fits() && left.fits(), InvalidArgument, out,
                  "constant_pad_nd: padding goes beyond 64 bits");
    sizes[d] = size.value();
    OPSMITH_CHECK(context, sizes[d] >= 0, InvalidArgument, out,
                  "The input size %d, plus negative padding %" PRId64 " and %" PRId64
                  " resulted in a negative output size, which is invalid. Check dimension %" PRId64
                  " of your input.",
                  static_cast<int>(self.sizes()[d]), before[d], after, d);
    OPSMITH_CHECK(context, left.value() >= 0, InvalidArgument, out,
                  "The input size %d is less than negative padding %" PRId64 " and %" PRId64
                  " takes away. Check dimension %" PRId64 " of your input.",
                  static_cast<int>(self.sizes()[d]), before[d], after, d);
    kept[d] = left.value();
    from.data += std::max<int64_t>(-before[d], 0) * from.strides[d] * width;
  }
  const bool fills = std::any_of(pad.begin(), pad.end(), [](int64_t n) { return n > 0; });
  Bytes16 element;
  if (!same_dtype(context, self, out) || (fills && !element_of(context, value, out.scalar_type(), element)) ||
      !resize(context, out, sizes) || !one_layout(context, {&out, &self})) {
    return out;
  }
  Destination to = destination_of(out);
  if (fills) {
    fill_strided(sizes, width, &element, to);
  }
  for (int64_t d = 0; d < rank; ++d) {
    origin += std::max<int64_t>(before[d], 0) * to.strides[d];
  }
  to.data += origin * width;
  copy_strided(kept, width, from, to);
  return out;
}

#define OPSMITH_EDGE_PAD(name, spatial, reflect)                                                        \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, IntList padding, Tensor& out) { \
    return pad_edges<spatial>(context, #name, self, padding, reflect, out);                             \
  }
OPSMITH_EDGE_PAD(reflection_pad1d, 1, true)
OPSMITH_EDGE_PAD(reflection_pad2d, 2, true)
OPSMITH_EDGE_PAD(reflection_pad3d, 3, true)
OPSMITH_EDGE_PAD(replication_pad1d, 1, false)
OPSMITH_EDGE_PAD(replication_pad2d, 2, false)
OPSMITH_EDGE_PAD(replication_pad3d, 3, false)
#undef OPSMITH_EDGE_PAD

}  // namespace native
}  // namespace opsmith::portable
