// The largest and the smallest element along dimensions, NaN if there is one. Structured kernels on the
// operator's own arguments: ATen's meta has checked them and shaped the result.
#include <opsmith/element_types.h>
#include <opsmith/on_host.h>
#include <opsmith/reduction.h>

#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace opsmith::example_kernels {
namespace {

// Elements of a row and results of columns that are compared side by side, so that loops vectorise and memory
// is read in long pieces; the grain size, in elements.
constexpr int64_t kLanes = 32;
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

// One result at a time: the densest dimension is one that goes.
template <class Extremum, class T>
void by_rows(const Reduction& r, const T* in, T* out) {
  ReductionDims outer = r.reduced;
  const auto row = outer.pop();
  const int64_t stride = row.stride[kIn];
  const int64_t grain = std::max<int64_t>(1, kGrain / r.length);
  at::parallel_for(0, r.outputs, grain, [&](int64_t begin, int64_t end) {
    for_each_position(r.kept, begin, end, [&](const auto& at) {
      compute_t<T> lanes[kLanes];
      std::fill_n(lanes, kLanes, Extremum::start);
      for_each_position(outer, 0, outer.numel(), [&](const auto& inner) {
        const T* const p = in + at[kIn] + inner[kIn];
        int64_t k = 0;
        for (; k + kLanes <= row.size; k += kLanes) {
          compare<Extremum>(lanes, p + k * stride, stride, kLanes);
        }
        compare<Extremum>(lanes, p + k * stride, stride, row.size - k);
      });
      // One after the other, they would wait for each other.
      for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        compare<Extremum>(lanes, lanes + half, 1, half);
      }
      store_element(out + at[kOut], lanes[0]);
    });
  });
}

// kColumns results at a time, which lie next to each other: the densest dimension is one that stays.
template <class Extremum, class T>
void by_columns(const Reduction& r, const T* in, T* out) {
  ReductionDims outer = r.kept;
  const auto column = outer.pop();
  const int64_t blocks = (column.size + kColumns - 1) / kColumns;
  const int64_t grain = std::max<int64_t>(1, kGrain / (r.length * kColumns));
  at::parallel_for(0, outer.numel() * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % blocks * kColumns;
      const int64_t width = std::min(kColumns, column.size - first);
      const auto at = outer.offsets(task / blocks);
      compute_t<T> lanes[kColumns];
      std::fill_n(lanes, kColumns, Extremum::start);
      for_each_position(r.reduced, 0, r.length, [&](const auto& inner) {
        const T* const p = in + at[kIn] + first * column.stride[kIn] + inner[kIn];
        compare<Extremum>(lanes, p, column.stride[kIn], width);
      });
      for (int64_t l = 0; l < width; ++l) {
        store_element(out + at[kOut] + (first + l) * column.stride[kOut], lanes[l]);
      }
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
    const bool columns =
        r.kept.rank() > 0 &&
        (r.reduced.rank() == 0 || r.kept.innermost().stride[kIn] < r.reduced.innermost().stride[kIn]);
    const auto run = columns ? by_columns<Extremum<compute_t<T>>, T> : by_rows<Extremum<compute_t<T>>, T>;
    on_host("amax", [run, r, in = host_data<const T>(self), to = host_data<T>(out)] { run(r, in, to); });
  });
}

}  // namespace

void amax(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  along<Max>(self, dim, keepdim, out);
}

void amin(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  along<Min>(self, dim, keepdim, out);
}

}  // namespace opsmith::example_kernels
