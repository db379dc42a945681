// Reductions that tell where: argmax, argmin, and max and min over one dimension. Of equal elements the first
// counts, and the first NaN before any number.
#include <opsmith/element_types.h>
#include <opsmith/host_access.h>
#include <opsmith/reduction.h>

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace opsmith::hosted {
namespace {

struct Larger {
  template <class C>
  static bool beats(C a, C b) {
    return a > b;
  }
};

struct Smaller {
  template <class C>
  static bool beats(C a, C b) {
    return a < b;
  }
};

// Calls write(position, value, index) for each result; `index` counts the reduced elements in logical order.
template <class Order, class T, class Write>
void find(Reduction r, const T* in, const Write& write) {
  // Merging keeps the order of positions, on which the index depends; sorting is only for the axes that stay.
  sort_axes(r.kept);
  merge_axes(r.reduced);
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, r.length));
  at::parallel_for(0, r.outputs, grain, [&](int64_t begin, int64_t end) {
    walk(r.kept, begin, end, [&](const Position& at) {
      using C = compute_t<T>;
      C best = load_element(in + at.in);
      int64_t best_index = 0;
      const auto meet = [&](C value, int64_t index) {
        if (Order::beats(value, best) || (value != value && best == best)) {
          best = value;
          best_index = index;
        }
      };
      if (r.reduced.size() == 1) {
        const Axis row = r.reduced.back();
        const T* const p = in + at.in;
        for (int64_t k = 1; k < row.size; ++k) {
          meet(load_element(p + k * row.in), k);
        }
      } else {
        int64_t k = 0;
        walk(r.reduced, 0, r.length,
             [&](const Position& inner) { meet(load_element(in + at.in + inner.in), k++); });
      }
      write(at, best, best_index);
    });
  });
}

template <class Order>
void index_of(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& out) {
  const Reduction r(self, dim.has_value() ? at::OptionalIntArrayRef(*dim) : std::nullopt, keepdim, out);
  int64_t* const indices = host_data<int64_t>(out);
  with_dtype(Numeric{}, self.scalar_type(), [&]<class T>() {
    find<Order>(r, host_data<const T>(self),
                [&](const Position& at, auto, int64_t index) { indices[at.out[0]] = index; });
  });
}

template <class Order>
void value_and_index(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& values,
                     const at::Tensor& out_indices) {
  const Reduction r(self, at::OptionalIntArrayRef(dim), keepdim, values, &out_indices);
  int64_t* const indices = host_data<int64_t>(out_indices);
  with_dtype(Real{}, self.scalar_type(), [&]<class T>() {
    T* const best = host_data<T>(values);
    find<Order>(r, host_data<const T>(self), [&](const Position& at, auto value, int64_t index) {
      store_element(best + at.out[0], value);
      indices[at.out[1]] = index;
    });
  });
}

}  // namespace

void argmax(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& out) {
  index_of<Larger>(self, dim, keepdim, out);
}

void argmin(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& out) {
  index_of<Smaller>(self, dim, keepdim, out);
}

void max_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& max,
             const at::Tensor& max_values) {
  value_and_index<Larger>(self, dim, keepdim, max, max_values);
}

void min_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& min,
             const at::Tensor& min_indices) {
  value_and_index<Smaller>(self, dim, keepdim, min, min_indices);
}

}  // namespace opsmith::hosted
