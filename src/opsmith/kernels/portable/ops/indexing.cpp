// index_select, index and index_put (integer and boolean indices in any mixture), masked_scatter, nonzero.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <type_traits>

#include "../../common/temporary.h"
#include "../common_dtype.h"
#include "../index_values.h"
#include "../movement.h"
#include "../scalar_tensor.h"

namespace opsmith::portable {
namespace {

using OptionalTensors = ArrayRef<std::optional<Tensor>>;

bool is_mask(const Tensor& t) {
  return t.scalar_type() == ScalarType::Bool || t.scalar_type() == ScalarType::Byte;
}

// f(at, first, step, count, bits) for each row of the last dimension: its coordinates, its elements as
// unsigned numbers, and the bits of which one is set where an element is not 0, all but the sign of floating
// point.
template <class F>
void for_each_row_of_bits(const Tensor& t, const F& f) {
  const Dims strides = strides_of(t);
  const bool floating = is_floating(t.scalar_type());
  Dims rows = sizes_of(t);
  const int64_t last = rows.rank - 1;
  const int64_t count = last < 0 ? 1 : rows[last];
  const int64_t step = last < 0 ? 1 : strides[last];
  rows.rank = last < 0 ? 0 : last;
  with_width(t.element_size(), [&](auto element) {
    using Bits = decltype(element);
    if constexpr (std::is_integral_v<Bits>) {  // no dtype with zeros is wider
      const Bits bits = static_cast<Bits>(static_cast<Bits>(~Bits{}) >> (floating ? 1 : 0));
      const Bits* const data = static_cast<const Bits*>(t.const_data_ptr());
      for_each_place(rows, rows.product(),
                     [&](const Dims& at) { f(at, data + offset_of(at, strides), step, count, bits); });
    }
  });
}

// f(at, last) for each element that is not 0, in order: its coordinates, of which the last stands apart.
template <class F>
void for_each_nonzero(const Tensor& t, const F& f) {
  for_each_row_of_bits(t, [&](const Dims& at, const auto* row, int64_t step, int64_t count, auto bits) {
    for (int64_t i = 0; i < count; ++i) {
      if ((row[i * step] & bits) != 0) {
        f(at, i);
      }
    }
  });
}

int64_t count_nonzero(const Tensor& t) {
  int64_t all = 0;
  for_each_row_of_bits(t, [&](const Dims&, const auto* row, int64_t step, int64_t count, auto bits) {
    int64_t of_row = 0;
    for (int64_t i = 0; i < count; ++i) {
      of_row += (row[i * step] & bits) != 0 ? 1 : 0;
    }
    all += of_row;
  });
  return all;
}

// One dimension that is indexed: by a tensor of integers, or by what a mask says of it.
struct IndexedDim {
  int64_t dim;
  const Tensor* tensor;        // null where a mask was taken apart
  const int64_t* coordinates;  // of a mask: one per element that it holds
  int64_t count;
  Temporary<int64_t> memory;  // where the coordinates lie
};

// `self` indexed: the sizes of the result, and for each place of the indices the offset in `self`.
struct IndexPlan {
  IndexedDim indexed[kMaxDims];
  int64_t count = 0;
  Dims places;        // what the indices broadcast to
  Dims sizes;         // of the result
  int64_t first = 0;  // dimension of the result where the places stand
  Dims kept;          // sizes of the dimensions that are not indexed
  int64_t kept_dims[kMaxDims];

  bool is_indexed(int64_t dim) const {
    for (int64_t i = 0; i < count; ++i) {
      if (indexed[i].dim == dim) {
        return true;
      }
    }
    return false;
  }
};

bool add_mask(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask, int64_t dim,
              IndexPlan& plan) {
  const int64_t rank = mask.dim();
  OPSMITH_CHECK(context, dim + rank <= self.dim(), NotFound, false,
                "too many indices for tensor of dimension %d", static_cast<int>(self.dim()));
  for (int64_t i = 0; i < rank; ++i) {
    OPSMITH_CHECK(context, mask.sizes()[i] == self.sizes()[dim + i], NotFound, false,
                  "The shape of the mask at index %" PRId64
                  " does not match the shape of the indexed tensor at index %" PRId64 " (%d and %d)",
                  i, dim + i, static_cast<int>(mask.sizes()[i]), static_cast<int>(self.sizes()[dim + i]));
  }
  const int64_t count = count_nonzero(mask);
  const auto coordinates = temporary<int64_t>(context, count * std::max<int64_t>(1, rank));
  if (coordinates == nullptr) {
    return false;
  }
  int64_t found = 0;
  for_each_nonzero(mask, [&](const Dims& at, int64_t last) {
    for (int64_t i = 0; i < rank; ++i) {
      coordinates[i * count + found] = i == rank - 1 ? last : at[i];
    }
    ++found;
  });
  for (int64_t i = 0; i < rank; ++i) {
    plan.indexed[plan.count++] = {dim + i, nullptr, coordinates + i * count, count, coordinates};
  }
  return true;
}

// The shape that the indices broadcast to; false, with the call rejected, where they do not.
bool broadcast_places(KernelRuntimeContext& context, IndexPlan& plan) {
  for (int64_t i = 0; i < plan.count; ++i) {
    const IndexedDim& each = plan.indexed[i];
    plan.places.rank = std::max<int64_t>(plan.places.rank, each.tensor != nullptr ? each.tensor->dim() : 1);
  }
  for (int64_t d = 0; d < plan.places.rank; ++d) {
    plan.places[d] = 1;
  }
  for (int64_t i = 0; i < plan.count; ++i) {
    const IndexedDim& each = plan.indexed[i];
    const int64_t rank = each.tensor != nullptr ? each.tensor->dim() : 1;
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t size = each.tensor != nullptr ? each.tensor->sizes()[d] : each.count;
      int64_t& place = plan.places[plan.places.rank - rank + d];
      OPSMITH_CHECK(context, size == place || size == 1 || place == 1, NotFound, false,
                    "shape mismatch: indexing tensors could not be broadcast together");
      place = place == 1 ? size : place;
    }
  }
  return true;
}

// The result's sizes: what is kept of self, and the places.
bool lay_out_result(KernelRuntimeContext& context, const Tensor& self, IndexPlan& plan) {
  // Where the places stand: in the place of the indexed dimensions where those are neighbours, else in front.
  bool neighbours = true;
  for (int64_t i = 1; i < plan.count; ++i) {
    neighbours = neighbours && plan.indexed[i].dim == plan.indexed[i - 1].dim + 1;
  }
  plan.first = neighbours ? plan.indexed[0].dim : 0;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!plan.is_indexed(d)) {
      plan.kept_dims[plan.kept.rank] = d;
      plan.kept.push_back(self.sizes()[d]);
    }
  }
  OPSMITH_CHECK(context, plan.kept.rank + plan.places.rank <= kMaxDims, NotSupported, false,
                "index: the result has more than %" PRId64 " dimensions", kMaxDims);
  for (int64_t d = 0; d < plan.first; ++d) {
    plan.sizes.push_back(plan.kept[d]);
  }
  for (int64_t d = 0; d < plan.places.rank; ++d) {
    plan.sizes.push_back(plan.places[d]);
  }
  for (int64_t d = plan.first; d < plan.kept.rank; ++d) {
    plan.sizes.push_back(plan.kept[d]);
  }
  return true;
}

bool make_plan(KernelRuntimeContext& context, const Tensor& self, OptionalTensors indices, IndexPlan& plan) {
  OPSMITH_CHECK(context, static_cast<int64_t>(indices.size()) <= self.dim(), NotFound, false,
                "too many indices for tensor of dimension %d (got %zu)", static_cast<int>(self.dim()),
                indices.size());
  int64_t dim = 0;
  for (const std::optional<Tensor>& index : indices) {
    if (!index.has_value()) {
      ++dim;
    } else if (is_mask(*index)) {
      if (!add_mask(context, self, *index, dim, plan)) {
        return false;
      }
      dim += index->dim();
    } else {
      OPSMITH_CHECK(context,
                    index->scalar_type() == ScalarType::Long || index->scalar_type() == ScalarType::Int,
                    NotFound, false, "tensors used as indices must be long, int, byte or bool tensors");
      OPSMITH_CHECK(context, dim < self.dim(), NotFound, false, "too many indices for tensor of dimension %d",
                    static_cast<int>(self.dim()));
      plan.indexed[plan.count++] = {dim++, &*index, nullptr, 0};
    }
  }
  OPSMITH_CHECK(context, dim <= self.dim(), NotFound, false, "too many indices for tensor of dimension %d",
                static_cast<int>(self.dim()));
  OPSMITH_CHECK(context, plan.count > 0, InvalidArgument, false, "at least one index is needed");
  if (!broadcast_places(context, plan)) {
    return false;
  }
  for (int64_t i = 0; i < plan.count; ++i) {
    OPSMITH_CHECK(context, self.sizes()[plan.indexed[i].dim] != 0 || plan.places.product() == 0, NotFound,
                  false, "index is out of bounds for dimension with size 0");
  }
  return lay_out_result(context, self, plan);
}

// Whether there is no index at all, which ExecuTorch takes for all of `self`, and ATen for a mistake.
bool names_everything(OptionalTensors indices, const Tensor& self) {
  return in_executorch() && static_cast<int64_t>(indices.size()) <= self.dim() &&
         std::none_of(indices.begin(), indices.end(), [](const auto& index) { return index.has_value(); });
}

// `values`, which is stretched, or what it adds to `self`, in the whole of `out`.
template <const char* Name>
void put_everywhere(KernelRuntimeContext& context, const Tensor& self, const Tensor& values, bool accumulate,
                    Tensor& out) {
  Dims sizes;
  if (!same_dtype(context, self, values) || !same_dtype(context, self, out) ||
      !broadcast_sizes(context, {&self, &values}, sizes)) {
    return;
  }
  OPSMITH_CHECK(context, sizes == sizes_of(self), InvalidArgument, ,
                "index_put: the values cannot be stretched to the shape of self");
  if (!resize_like(context, out, self)) {
    return;
  }
  copy_elements(context, accumulate ? self : values, out);
  if (accumulate) {
    with_dtype<Name>(context, RealB{}, out.scalar_type(), [&](auto type) {
      using T = typename decltype(type)::type;
      T* const to = static_cast<T*>(out.mutable_data_ptr());
      const T* const from = static_cast<const T*>(values.const_data_ptr());
      strided_over(out, values).for_each(0, out.numel(), [&](const auto& at, const auto&) {
        store_element(to + at[0], load_element(to + at[0]) + load_element(from + at[1]));
      });
    });
  }
}

// The offset in a tensor with `strides` for each place of the indices. Null with the call rejected.
Temporary<int64_t> offsets_of(KernelRuntimeContext& context, const Tensor& self, const IndexPlan& plan,
                              const Dims& strides) {
  const int64_t count = plan.places.product();
  const auto offsets = temporary<int64_t>(context, count);
  if (offsets == nullptr) {
    return {};
  }
  std::fill_n(offsets.get(), count, 0);
  for (int64_t i = 0; i < plan.count; ++i) {
    const IndexedDim& each = plan.indexed[i];
    const int64_t stride = strides[each.dim];
    if (each.tensor == nullptr) {
      // A mask's coordinates stand in the last dimension.
      for (int64_t p = 0; p < count; ++p) {
        offsets[p] += each.coordinates[each.count == 1 ? 0 : p % each.count] * stride;
      }
      continue;
    }
    Dims own = plan.places;
    const int64_t missing = own.rank - each.tensor->dim();
    for (int64_t d = 0; d < own.rank; ++d) {
      own[d] =
          d < missing || each.tensor->sizes()[d - missing] == 1 ? 0 : each.tensor->strides()[d - missing];
    }
    const Indices indices(*each.tensor);
    IndexCheck check(self.sizes()[each.dim]);
    int64_t p = 0;
    if (each.tensor->numel() == count && is_contiguous(*each.tensor)) {
      for (; p < count; ++p) {
        offsets[p] += check.wrapped(indices.at(p)) * stride;
      }
    } else {
      for_each_place(plan.places, count, [&](const Dims& at) {
        offsets[p++] += check.wrapped(indices.at(offset_of(at, own))) * stride;
      });
    }
    if (!check.passed(context, each.dim, Error::NotFound)) {
      return {};
    }
  }
  return offsets;
}

// How many offsets are computed at a time, where no table of all is needed.
constexpr int64_t kOffsets = 512;

// Whether every index lies in the order of the places, and names an element: then some_offsets needs neither
// a table nor a check.
bool are_in_order(const Tensor& self, const IndexPlan& plan) {
  const int64_t count = plan.places.product();
  for (int64_t i = 0; i < plan.count; ++i) {
    const Tensor* const tensor = plan.indexed[i].tensor;
    if (tensor == nullptr || tensor->numel() != count || !is_contiguous(*tensor)) {
      return false;
    }
    const Indices indices(*tensor);
    const int64_t size = self.sizes()[plan.indexed[i].dim];
    IndexCheck check(size);
    parallel(count, kGrain, [&](int64_t begin, int64_t end) {
      indices.read(begin, end, [&](int64_t, int64_t index) { check.wrapped(index); });
    });
    if (check.found_wrong()) {
      return false;
    }
  }
  return true;
}

// The offsets of the places from `begin` to `end`.
void some_offsets(const Tensor& self, const IndexPlan& plan, const Dims& strides, int64_t begin, int64_t end,
                  int64_t* offsets) {
  std::fill_n(offsets, end - begin, 0);
  for (int64_t i = 0; i < plan.count; ++i) {
    const IndexedDim& each = plan.indexed[i];
    const int64_t size = self.sizes()[each.dim], stride = strides[each.dim];
    Indices(*each.tensor).read(begin, end, [&](int64_t place, int64_t index) {
      offsets[place - begin] += (index < 0 ? index + size : index) * stride;
    });
  }
}

// Strides of the result's dimensions that stand for places, and of those that were kept.
struct ResultStrides {
  Dims places;
  Dims kept;
};

ResultStrides split(const IndexPlan& plan, const Dims& strides) {
  ResultStrides split;
  for (int64_t d = 0; d < strides.rank; ++d) {
    const bool place = d >= plan.first && d < plan.first + plan.places.rank;
    (place ? split.places : split.kept).push_back(strides[d]);
  }
  return split;
}

// The offsets of the places in a tensor that has them as dimensions.
Temporary<int64_t> place_offsets(KernelRuntimeContext& context, const Dims& places, const Dims& strides) {
  const auto offsets = temporary<int64_t>(context, places.product());
  if (offsets != nullptr) {
    int64_t p = 0;
    for_each_place(places, places.product(), [&](const Dims& at) { offsets[p++] = offset_of(at, strides); });
  }
  return offsets;
}

// f(n, from, from_stride, to, to_stride) for each line of elements that belong together.
void for_each_line(const IndexPlan& plan, const Dims& from_kept, const int64_t* from_places,
                   const Dims& to_kept, const int64_t* to_places, int64_t grain,
                   FunctionRef<void(int64_t, int64_t, int64_t, int64_t, int64_t)> f) {
  auto all = strided(1, plan.kept, from_kept, to_kept);
  const auto line = all.pop();
  // The places are the outermost dimension; their offsets come from the tables.
  all.add_outermost(plan.places.product(), {0, 0});
  for_each_in_threads<2>(all, grain / line.size, [&](const auto& at, const auto& index) {
    f(line.size, at[0] + from_places[index[0]], line.stride[0], at[1] + to_places[index[0]], line.stride[1]);
  });
}

Dims kept_strides(const IndexPlan& plan, const Dims& strides) {
  Dims kept = plan.kept;
  for (int64_t i = 0; i < kept.rank; ++i) {
    kept[i] = strides[plan.kept_dims[i]];
  }
  return kept;
}

constexpr char kIndexPut[] = "index_put.out";

// Copies lines as for_each_line meets them, of any dtype.
void move_lines(const Tensor& self, const Tensor& out, const IndexPlan& plan, const Dims& from_kept,
                const int64_t* from, const Dims& to_kept, const int64_t* to, int64_t grain) {
  const int64_t width = self.element_size();
  const MoveLine move = line_mover(width);
  const char* const source = static_cast<const char*>(self.const_data_ptr());
  char* const destination = static_cast<char*>(out.mutable_data_ptr());
  for_each_line(plan, from_kept, from, to_kept, to, grain,
                [=](int64_t n, int64_t p, int64_t p_stride, int64_t q, int64_t q_stride) {
                  move(n, source + p * width, p_stride, destination + q * width, q_stride);
                });
}

// The same where places, and what belongs together, lie evenly apart in `out`: false where they do not.
bool move_even_lines(const Tensor& self, Tensor& out, const IndexPlan& plan, const Dims& from_kept,
                     const Dims& strides, const ResultStrides& result) {
  const auto kept = strided(1, plan.kept, from_kept, result.kept);
  StridedIterator<1> places;
  for (int64_t d = 0; d < plan.places.rank; ++d) {
    places.add(plan.places[d], {result.places[d]});
  }
  places.coalesce();
  if (kept.rank() > 1 || places.rank() > 1 || !are_in_order(self, plan)) {
    return false;
  }
  const auto line = kept.innermost();
  const int64_t step = places.rank() == 0 ? 0 : places.innermost().stride[0], width = self.element_size();
  const char* const source = static_cast<const char*>(self.const_data_ptr());
  char* const destination = static_cast<char*>(out.mutable_data_ptr());
  const MoveLine move = line_mover(width);
  const auto move_places = [&](int64_t begin, int64_t end, const int64_t* from) {
    if (line.size == 1) {
      with_width(width, [&](auto element) {
        using U = decltype(element);
        const U* const p = reinterpret_cast<const U*>(source);
        U* const q = reinterpret_cast<U*>(destination);
        for (int64_t i = begin; i < end; ++i) {
          q[i * step] = p[from[i - begin]];
        }
      });
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      move(line.size, source + from[i - begin] * width, line.stride[0], destination + i * step * width,
           line.stride[1]);
    }
  };
  parallel(plan.places.product(), grain_size(line.size), [&](int64_t begin, int64_t end) {
    int64_t offsets[kOffsets];
    for (; begin < end; begin += kOffsets) {
      const int64_t stop = std::min(end, begin + kOffsets);
      some_offsets(self, plan, strides, begin, stop, offsets);
      move_places(begin, stop, offsets);
    }
  });
  return true;
}

// "[2, 3]"
std::array<char, 22 * kMaxDims + 3> text_of(const Dims& sizes) {
  std::array<char, 22 * kMaxDims + 3> text{"["};
  size_t end = 1;
  for (int64_t d = 0; d < sizes.rank; ++d) {
    end += static_cast<size_t>(
        std::snprintf(&text[end], text.size() - end, d == 0 ? "%" PRId64 : ", %" PRId64, sizes[d]));
  }
  text[end] = ']';
  return text;
}

// The strides with which `values` stands for the result of indexing.
bool value_strides(KernelRuntimeContext& context, const Tensor& values, const IndexPlan& plan,
                   Dims& strides) {
  const int64_t missing = plan.sizes.rank - values.dim();
  bool broadcasts = true;
  for (int64_t d = 0; d < values.dim(); ++d) {
    const int64_t at = missing + d;
    const int64_t size = values.sizes()[d];
    broadcasts = broadcasts && at >= 0 && (size == 1 || size == plan.sizes[at]);
  }
  OPSMITH_CHECK(context, broadcasts, InvalidArgument, false,
                "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
                text_of(sizes_of(values)).data(), text_of(plan.sizes).data());
  for (int64_t d = 0; d < plan.sizes.rank; ++d) {
    strides.push_back(d < missing || values.sizes()[d - missing] == 1 ? 0 : values.strides()[d - missing]);
  }
  return true;
}

}  // namespace

namespace native {

Tensor& index_tensor_out(KernelRuntimeContext& context, const Tensor& self, OptionalTensors indices,
                         Tensor& out) {
  IndexPlan plan;
  if (!same_dtype(context, self, out)) {
    return out;
  }
  if (names_everything(indices, self)) {
    if (resize_like(context, out, self)) {
      copy_elements(context, self, out);
    }
    return out;
  }
  if (!make_plan(context, self, indices, plan) || !resize(context, out, plan.sizes)) {
    return out;
  }
  // ATen looks at no index where nothing is moved; the runtime's kernel does where self is empty.
  if (plan.places.product() == 0 || (out.numel() == 0 && (self.numel() != 0 || !in_executorch()))) {
    return out;
  }
  const Dims strides = strides_of(self);
  const ResultStrides result = split(plan, strides_of(out));
  if (out.numel() != 0 && move_even_lines(self, out, plan, kept_strides(plan, strides), strides, result)) {
    return out;
  }
  const Temporary<int64_t> from = offsets_of(context, self, plan, strides);
  if (from == nullptr || out.numel() == 0) {
    return out;
  }
  const Temporary<int64_t> to = place_offsets(context, plan.places, result.places);
  if (to == nullptr) {
    return out;
  }
  move_lines(self, out, plan, kept_strides(plan, strides), from, result.kept, to, kGrain);
  return out;
}

// Whether the call fills where a mask is set, for which ATen converts the value: one mask, and one value.
bool is_masked_fill(OptionalTensors indices, const Tensor& values) {
  const auto given = [](const std::optional<Tensor>& index) { return index.has_value(); };
  const auto first = std::find_if(indices.begin(), indices.end(), given);
  return values.numel() == 1 && contains(RealB{}, values.scalar_type()) && first != indices.end() &&
         is_mask(**first) && std::none_of(first + 1, indices.end(), given);
}

// Elements that several indices name are taken in order: the last one stays, or all are added.
Tensor& index_put_out(KernelRuntimeContext& context, const Tensor& self, OptionalTensors indices,
                      const Tensor& values, bool accumulate, Tensor& out) {
  if (!same_dtype(context, self, out)) {
    return out;
  }
  if (names_everything(indices, self)) {
    put_everywhere<kIndexPut>(context, self, values, accumulate, out);
    return out;
  }
  IndexPlan plan;
  if (!make_plan(context, self, indices, plan)) {
    return out;
  }
  if (self.scalar_type() != values.scalar_type() && !accumulate && is_masked_fill(indices, values)) {
    const Scalar value = element_of(values);
    return fits(context, value, self.scalar_type())
               ? index_put_out(context, self, indices, ScalarTensor(value, self.scalar_type()), false, out)
               : out;
  }
  Dims values_strides;
  if (!value_strides(context, values, plan, values_strides)) {
    return out;
  }
  OPSMITH_CHECK(
      context, self.scalar_type() == values.scalar_type(), InvalidArgument, out,
      "Index put requires the source and destination dtypes match, got %s for the destination and %s for "
      "the source.",
      name_of(self.scalar_type()), name_of(values.scalar_type()));
  if (!resize(context, out, sizes_of(self))) {
    return out;
  }
  if (plan.sizes.product() == 0) {
    copy_elements(context, self, out);
    return out;
  }
  const ResultStrides given = split(plan, values_strides);
  const Dims strides = strides_of(out);
  const Temporary<int64_t> to = offsets_of(context, self, plan, strides);
  const Temporary<int64_t> from = to == nullptr ? to : place_offsets(context, plan.places, given.places);
  if (from == nullptr) {
    return out;
  }
  copy_elements(context, self, out);
  constexpr int64_t kOneThread = INT64_MAX;
  const Dims kept = kept_strides(plan, strides);
  if (!accumulate) {
    move_lines(values, out, plan, given.kept, from, kept, to, kOneThread);
    return out;
  }
  with_dtype<kIndexPut>(context, RealB{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* const source = static_cast<const T*>(values.const_data_ptr());
    T* const destination = static_cast<T*>(out.mutable_data_ptr());
    for_each_line(plan, given.kept, from, kept, to, kOneThread,
                  [=](int64_t n, int64_t p, int64_t p_stride, int64_t q, int64_t q_stride) {
                    for (int64_t i = 0; i < n; ++i) {
                      T* const place = destination + q + i * q_stride;
                      const auto added = load_element(source + p + i * p_stride);
                      if constexpr (std::is_same_v<T, bool>) {
                        *place = load_element(place) || added;
                      } else {
                        store_element(place, static_cast<compute_t<T>>(load_element(place) + added));
                      }
                    }
                  });
  });
  return out;
}

// Indices are checked, whatever the gradient of `index` says of its own.
Tensor& index_put_impl_out(KernelRuntimeContext& context, const Tensor& self, OptionalTensors indices,
                           const Tensor& values, bool accumulate, bool /*unsafe*/, Tensor& out) {
  return index_put_out(context, self, indices, values, accumulate, out);
}

Tensor& index_select_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, const Tensor& index,
                         Tensor& out) {
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return out;
  }
  OPSMITH_CHECK(context, index.dim() <= 1, NotFound, out, "index_select(): Index is supposed to be a vector");
  if (!Indices::accepts(context, "index_select", index)) {
    return out;
  }
  OPSMITH_CHECK(context, self.dim() != 0 || index.numel() == 1, InvalidArgument, out,
                "index_select(): Index to scalar can have only 1 value, got %d value(s)",
                static_cast<int>(index.numel()));
  if (!same_dtype(context, self, out)) {
    return out;
  }
  Dims sizes = sizes_of(self);
  const int64_t extent = self.dim() == 0 ? 1 : sizes[d];
  if (self.dim() != 0) {
    sizes[d] = index.numel();
  }
  if (!resize(context, out, sizes)) {
    return out;
  }
  const Indices indices(index);
  IndexCheck check(extent);
  check.check(indices, index.numel());
  // ATen says it in other words of tensors without elements.
  OPSMITH_CHECK(context, !check.found_wrong() || self.dim() <= 1 || self.numel() != 0, InvalidArgument, out,
                "INDICES element is out of DATA bounds, id=%" PRId64 " axis_dim=%" PRId64, check.wrong(),
                extent);
  OPSMITH_CHECK(context, !check.found_wrong(), NotFound, out, "index out of range in self");
  if (out.numel() == 0) {
    return out;
  }
  const Source from = source_of(self);
  const Destination to = destination_of(out);
  Dims kept = sizes;
  Dims from_kept = from.strides;
  Dims to_kept = to.strides;
  const int64_t step = self.dim() == 0 ? 0 : from.strides[d];
  const int64_t out_step = self.dim() == 0 ? 0 : to.strides[d];
  if (self.dim() != 0) {
    kept.erase(d);
    from_kept.erase(d);
    to_kept.erase(d);
  }
  auto all = strided(1, kept, from_kept, to_kept);
  const auto line = all.pop();
  const int64_t width = self.element_size();
  if (line.size == 1 || out_step < line.stride[1]) {
    // Selected elements lie closer together than kept ones: single elements are moved.
    StridedIterator<3> elements;
    for (size_t i = 0; i < all.rank(); ++i) {
      elements.add(all[i].size, {all[i].stride[0], all[i].stride[1], 0});
    }
    elements.add(line.size, {line.stride[0], line.stride[1], 0});
    elements.coalesce();
    elements.add(index.numel(), {0, out_step, 1});
    const auto row = elements.innermost(), next = elements.innermost(1);
    for_each_row_in_threads<3>(elements, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
      with_width(width, [&](auto element) {
        using U = decltype(element);
        for (int64_t k = 0; k < rows; ++k) {
          const U* const p = reinterpret_cast<const U*>(from.data) + at[0] + k * next.stride[0];
          U* const q = reinterpret_cast<U*>(to.data) + at[1] + k * next.stride[1];
          indices.read(at[2], at[2] + n, [&](int64_t place, int64_t taken) {
            q[(place - at[2]) * row.stride[1]] = p[taken * step];
          });
        }
      });
    });
    return out;
  }
  const MoveLine move = line_mover(width);
  if (all.rank() == 0) {
    const bool is_dense = line.stride == StridedIterator<2>::Offsets{1, 1};
    parallel(index.numel(), grain_size(line.size), [&](int64_t begin, int64_t end) {
      if (is_dense) {
        copy_rows(indices, begin, end, line.size * width, from.data, step * width, to.data, out_step * width);
        return;
      }
      for (int64_t i = begin; i < end; ++i) {
        move(line.size, from.data + indices.at(i) * step * width, line.stride[0],
             to.data + i * out_step * width, line.stride[1]);
      }
    });
    return out;
  }
  all.add_outermost(index.numel(), {0, out_step});
  for_each_in_threads<2>(all, kGrain / line.size, [&](const auto& at, const auto& place) {
    move(line.size, from.data + (at[0] + indices.at(place[0]) * step) * width, line.stride[0],
         to.data + at[1] * width, line.stride[1]);
  });
  return out;
}

// Elements of source, in order, to where the mask is true. All tensors are contiguous, as the manifest says.
// The elements of `self` at whose places the mask, to which it broadcasts and which does so to it, holds.
Tensor& masked_select_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask,
                          Tensor& out) {
  OPSMITH_CHECK(context, mask.scalar_type() == ScalarType::Bool, InvalidArgument, out,
                "masked_select: expected BoolTensor for mask, but got %s", name_of(mask.scalar_type()));
  Dims sizes;
  if (!same_dtype(context, self, out) || !broadcast_sizes(context, {&self, &mask}, sizes)) {
    return out;
  }
  Dims own = sizes;
  Dims masks = sizes;
  for (int64_t d = 0; d < sizes.rank; ++d) {
    own[d] = broadcast_stride(self, d, sizes.rank);
    masks[d] = broadcast_stride(mask, d, sizes.rank);
  }
  // In the order of the dimensions, so on one thread: where an element goes depends on all before it.
  const auto for_each_taken = [&](auto&& f) {
    const uint8_t* const holds = static_cast<const uint8_t*>(mask.const_data_ptr());
    for_each_place(sizes, std::max<int64_t>(1, sizes.product()), [&](const Dims& at) {
      if (holds[offset_of(at, masks)] != 0) {
        f(offset_of(at, own));
      }
    });
  };
  int64_t count = 0;
  for_each_taken([&](int64_t) { ++count; });
  if (!resize(context, out, {count})) {
    return out;
  }
  const int64_t width = self.element_size();
  const MoveLine move = line_mover(width);
  char* to = static_cast<char*>(out.mutable_data_ptr());
  for_each_taken([&](int64_t offset) {
    move(1, static_cast<const char*>(self.const_data_ptr()) + offset * width, 1, to, 1);
    to += width;
  });
  return out;
}

Tensor& masked_scatter_out(KernelRuntimeContext& context, const Tensor& self, const Tensor& mask,
                           const Tensor& source, Tensor& out) {
  OPSMITH_CHECK(
      context, self.scalar_type() == source.scalar_type() && self.scalar_type() == out.scalar_type(),
      InvalidArgument, out, "masked_scatter_: expected self and source to have same dtypes but got %s and %s",
      name_of(self.scalar_type()), name_of(source.scalar_type()));
  OPSMITH_CHECK(context, mask.scalar_type() == ScalarType::Bool, InvalidArgument, out,
                "masked_scatter_ only supports boolean masks, but got mask with dtype %s",
                name_of(mask.scalar_type()));
  if (!resize_to_broadcast(context, out, {&self, &mask}) ||
      !are_contiguous(context, {&self, &mask, &source, &out})) {
    return out;
  }
  const Dims sizes = sizes_of(out);
  const auto expanded = [&](const Tensor& t) {
    Dims strides = sizes;
    const int64_t missing = sizes.rank - t.dim();
    for (int64_t d = 0; d < sizes.rank; ++d) {
      strides[d] = d < missing || t.sizes()[d - missing] == 1 ? 0 : t.strides()[d - missing];
    }
    return strides;
  };
  const int64_t width = out.element_size();
  copy_strided(sizes, width, {static_cast<const char*>(self.const_data_ptr()), expanded(self)},
               destination_of(out));
  const Dims mask_strides = expanded(mask);
  const Dims to_strides = strides_of(out);
  const uint8_t* const chosen = static_cast<const uint8_t*>(mask.const_data_ptr());
  const char* from = static_cast<const char*>(source.const_data_ptr());
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  int64_t left = source.numel();
  bool enough = true;
  for_each_place(sizes, sizes.product(), [&](const Dims& at) {
    if (chosen[offset_of(at, mask_strides)] == 0 || !enough) {
      return;
    }
    enough = left-- > 0;
    if (enough) {
      std::memcpy(to + offset_of(at, to_strides) * width, from, static_cast<size_t>(width));
      from += width;
    }
  });
  OPSMITH_CHECK(context, enough, InvalidArgument, out,
                "Number of elements of source < number of ones in mask");
  return out;
}

Tensor& nonzero_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  OPSMITH_CHECK(context, out.scalar_type() == ScalarType::Long, InvalidArgument, out,
                "nonzero: Expected out tensor to have scalar type Long but got scalar type%s",
                name_of(out.scalar_type()));
  OPSMITH_CHECK(context, contains(RealB{}, self.scalar_type()), NotSupported, out,
                "\"nonzero.out\" not implemented for '%s'", name_of(self.scalar_type()));
  const int64_t rank = self.dim();
  if (!resize(context, out, {count_nonzero(self), rank}) || out.numel() == 0) {
    return out;
  }
  int64_t* const to = out.mutable_data_ptr<int64_t>();
  const int64_t row_stride = out.strides()[0];
  const int64_t column_stride = out.strides()[1];
  int64_t row = 0;
  for_each_nonzero(self, [&](const Dims& at, int64_t last) {
    for (int64_t i = 0; i < rank; ++i) {
      to[row * row_stride + i * column_stride] = i == rank - 1 ? last : at[i];
    }
    ++row;
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
