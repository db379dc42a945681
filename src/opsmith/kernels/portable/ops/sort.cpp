// sort and topk: along one dimension, with the places that elements come from. NaN counts as the largest.
// Sorts that need not be stable follow ATen's algorithms, so that equal elements fall as they do there.
#include <algorithm>
#include <optional>
#include <tuple>

#include "../../common/tasks.h"
#include "../movement.h"
#include "../wide_type.h"

namespace opsmith::portable {
namespace {

using Results = std::tuple<Tensor&, Tensor&>;

constexpr char kSort[] = "sort.values";
constexpr char kSortStable[] = "sort.values_stable";
constexpr char kTopk[] = "topk.values";

template <class C>
struct Entry {
  C value;
  int64_t index;
};

template <class C>
bool is_nan(C value) {
  return value != value;
}

struct Request {
  int64_t dim;
  int64_t count;  // how many elements of a line are kept
  bool descending;
  bool sorted;
  bool stable;
  bool whole;  // a sort; a topk otherwise
};

// A line's elements, `step` apart, with their indices.
template <class C>
void load_entries(Convert load, const char* from, int64_t width, int64_t step, int64_t n, Entry<C>* entries) {
  C block[kTile];
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t count = std::min(kTile, n - i);
    load(from + i * step * width, {1, count, 0, step}, block);
    for (int64_t k = 0; k < count; ++k) {
      entries[i + k] = {block[k], i + k};
    }
  }
}

// Puts the first `count` entries of n in front, as the request has them ordered.
template <class C>
[[gnu::noinline]] void order_entries(const Request& request, Entry<C>* entries, int64_t n) {
  const auto before = [](const Entry<C>& a, const Entry<C>& b) {
    return a.value < b.value || (!is_nan(a.value) && is_nan(b.value));
  };
  const bool descending = request.descending;
  const auto first = [=](const Entry<C>& a, const Entry<C>& b) {
    return descending ? before(b, a) : before(a, b);
  };
  // With the index as the last word, any sort is a stable one.
  const auto stably_first = [=](const Entry<C>& a, const Entry<C>& b) {
    return first(a, b) || (!first(b, a) && a.index < b.index);
  };
  if (request.whole) {
    if (request.stable) {
      std::sort(entries, entries + n, stably_first);
    } else {
      std::sort(entries, entries + n, first);
    }
  } else if (request.count * 64 <= n) {
    std::partial_sort(entries, entries + request.count, entries + n, first);
  } else {
    std::nth_element(entries, entries + request.count - 1, entries + n, first);
    if (request.sorted) {
      std::sort(entries, entries + request.count - 1, first);
    }
  }
}

// Lines of self, each copied with its indices as numbers of type C, ordered, and the first `count` elements
// taken from self.
template <class C>
[[gnu::noinline]] void order_lines(KernelRuntimeContext& context, const Tensor& self, const Request& request,
                                   Tensor& values, Tensor& indices) {
  const bool scalar = self.dim() == 0;
  Dims places = sizes_of(self);
  const int64_t n = scalar ? 1 : places[request.dim];
  if (!scalar) {
    places[request.dim] = 1;
  }
  const int64_t lines = places.product();
  if (values.numel() == 0) {
    return;
  }
  const auto step_of = [&](const Tensor& t) {
    return scalar ? 1 : static_cast<int64_t>(t.strides()[request.dim]);
  };
  const int64_t step = step_of(self);
  const int64_t values_step = step_of(values);
  const int64_t indices_step = step_of(indices);
  const Dims strides = strides_of(self);
  const Dims values_strides = strides_of(values);
  const Dims indices_strides = strides_of(indices);
  const Convert load = conversion(self.scalar_type(), dtype_of<C>);
  const int64_t width = self.element_size();
  OPSMITH_CHECK(context, load != nullptr, NotSupported, , "an order of %s is not part of this build",
                name_of(self.scalar_type()));
  const auto order_line = [&](int64_t line, Entry<C>* entries) {
    Dims at = places;
    for (int64_t d = at.rank - 1; d >= 0; --d) {
      at[d] = line % places[d];
      line /= places[d];
    }
    const char* const from = static_cast<const char*>(self.const_data_ptr()) + offset_of(at, strides) * width;
    load_entries(load, from, width, step, n, entries);
    order_entries(request, entries, n);
    char* const to = static_cast<char*>(values.mutable_data_ptr()) + offset_of(at, values_strides) * width;
    int64_t* const places_to = indices.mutable_data_ptr<int64_t>() + offset_of(at, indices_strides);
    for (int64_t i = 0; i < request.count; ++i) {
      std::memcpy(to + i * values_step * width, from + entries[i].index * step * width,
                  static_cast<size_t>(width));
      places_to[i * indices_step] = entries[i].index;
    }
  };
  run_tasks<Entry<C>>(context, lines, grain_size(n, 4096), n, order_line);
}

template <const char* Name>
Results order(KernelRuntimeContext& context, const Tensor& self, int64_t dim, std::optional<int64_t> k,
              bool descending, bool sorted, bool stable, Tensor& values, Tensor& indices) {
  Results results(values, indices);
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return results;
  }
  OPSMITH_CHECK(context,
                values.scalar_type() == self.scalar_type() && indices.scalar_type() == ScalarType::Long,
                InvalidArgument, results, "%s: values must have self's dtype, and indices Long", Name);
  Dims sizes = sizes_of(self);
  const int64_t size = self.dim() == 0 ? 1 : sizes[d];
  const int64_t count = k.value_or(size);
  OPSMITH_CHECK(context, count >= 0 && count <= size, InvalidArgument, results,
                "selected index k out of range");
  if (self.dim() != 0) {
    sizes[d] = count;
  }
  if (!resize(context, values, sizes) || !resize(context, indices, sizes)) {
    return results;
  }
  with_wide_type<Name>(context, self.scalar_type(), [&](auto type) {
    // A number is kept whatever the count.
    const int64_t kept = self.dim() == 0 ? 1 : count;
    if (kept > 0) {
      order_lines<typename decltype(type)::type>(
          context, self, {d, kept, descending, sorted, stable, !k.has_value()}, values, indices);
    }
  });
  return results;
}

}  // namespace

namespace native {

Results sort_values(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool descending,
                    Tensor& values, Tensor& indices) {
  return order<kSort>(context, self, dim, std::nullopt, descending, true, false, values, indices);
}

Results sort_values_stable(KernelRuntimeContext& context, const Tensor& self, std::optional<bool> stable,
                           int64_t dim, bool descending, Tensor& values, Tensor& indices) {
  return order<kSortStable>(context, self, dim, std::nullopt, descending, true, stable.value_or(false),
                            values, indices);
}

Results topk_values(KernelRuntimeContext& context, const Tensor& self, int64_t k, int64_t dim, bool largest,
                    bool sorted, Tensor& values, Tensor& indices) {
  return order<kTopk>(context, self, dim, k, largest, sorted, false, values, indices);
}

}  // namespace native
}  // namespace opsmith::portable
