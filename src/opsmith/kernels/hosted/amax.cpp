// The largest and the smallest element along dimensions, NaN if there is one. Structured kernels on the
// operator's own arguments: ATen's meta has checked them and shaped the result.
#include <opsmith/element_types.h>
#include <opsmith/host_access.h>
#include <opsmith/reduction.h>

#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace opsmith::hosted {
namespace {

// Elements of a row and results of columns that are compared side by side, so that loops vectorise and memory
// is read in long pieces; elements worth a thread.
constexpr int64_t kLanes = 64;
constexpr int64_t kColumns = 256;
constexpr int64_t kGrain = 32768;

template <class C>
struct Max {
  static constexpr C start = std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                                  : std::numeric_limits<C>::lowest();
  static C of(C a, C b) { return ((a < b) | (b != b)) ? b : a; }
};

template <class C>
struct Min {
  static constexpr C start = std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity()
                                                                  : std::numeric_limits<C>::max();
  static C of(C a, C b) { return ((b < a) | (b != b)) ? b : a; }
};

// Takes one more element into each of n lanes; the elements lie `stride` apart.
template <class Extremum, class T>
void compare(compute_t<T>* lanes, const T* p, int64_t stride, int64_t n) {
  if (stride == 1) {
#pragma GCC ivdep
    for (int64_t l = 0; l < n; ++l) {
      lanes[l] = Extremum::of(lanes[l], load_element(p + l));
    }
  } else {
    for (int64_t l = 0; l < n; ++l) {
      lanes[l] = Extremum::of(lanes[l], load_element(p + l * stride));
    }
  }
}

// One result at a time: the densest axis is one that goes.
template <class Extremum, class T>
void by_rows(const Reduction& r, const T* in, T* out) {
  const Axis row = r.reduced.empty() ? Axis{1, 1} : r.reduced.back();
  Axes outer = r.reduced;
  if (!outer.empty()) {
    outer.pop_back();
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / r.length);
  at::parallel_for(0, r.outputs, grain, [&](int64_t begin, int64_t end) {
    walk(r.kept, begin, end, [&](const Position& at) {
      compute_t<T> lanes[kLanes];
      std::fill_n(lanes, kLanes, Extremum::start);
      walk(outer, 0, product_of_sizes(outer), [&](const Position& inner) {
        const T* const p = in + at.in + inner.in;
        for (int64_t k = 0; k < row.size; k += kLanes) {
          compare<Extremum>(lanes, p + k * row.in, row.in, std::min(kLanes, row.size - k));
        }
      });
      compute_t<T> extremum = Extremum::start;
      for (const compute_t<T> lane : lanes) {
        extremum = Extremum::of(extremum, lane);
      }
      store_element(out + at.out, extremum);
    });
  });
}

// kColumns results at a time, which lie next to each other: the densest axis is one that stays.
template <class Extremum, class T>
void by_columns(const Reduction& r, const T* in, T* out) {
  const Axis column = r.kept.back();
  Axes outer = r.kept;
  outer.pop_back();
  const int64_t blocks = (column.size + kColumns - 1) / kColumns;
  const int64_t grain = std::max<int64_t>(1, kGrain / (r.length * kColumns));
  at::parallel_for(0, product_of_sizes(outer) * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % blocks * kColumns;
      const int64_t width = std::min(kColumns, column.size - first);
      walk(outer, task / blocks, task / blocks + 1, [&](const Position& at) {
        compute_t<T> lanes[kColumns];
        std::fill_n(lanes, kColumns, Extremum::start);
        walk(r.reduced, 0, r.length, [&](const Position& inner) {
          compare<Extremum>(lanes, in + at.in + first * column.in + inner.in, column.in, width);
        });
        for (int64_t l = 0; l < width; ++l) {
          store_element(out + at.out + (first + l) * column.out, lanes[l]);
        }
      });
    }
  });
}

template <template <class> class Extremum>
void along(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  Reduction r(self, dim, keepdim, out);
  if (r.outputs == 0 || r.length == 0) {  // ATen's meta refuses to reduce no elements to one
    return;
  }
  r.order_by_stride();
  with_dtype(Numeric{}, self.scalar_type(), [&]<class T>() {
    const bool columns = !r.kept.empty() && (r.reduced.empty() || r.kept.back().in < r.reduced.back().in);
    (columns ? by_columns<Extremum<compute_t<T>>, T>
             : by_rows<Extremum<compute_t<T>>, T>)(r, host_data<const T>(self), host_data<T>(out));
  });
}

}  // namespace

void amax(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  along<Max>(self, dim, keepdim, out);
}

void amin(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  along<Min>(self, dim, keepdim, out);
}

}  // namespace opsmith::hosted
