// The engine of reductions to values: reduce<Policy>(geometry, elements, write). It walks memory in order,
// whichever axes are reduced; what differs between operators is a policy of a few lines:
//
//   Narrow, Wide         the types in which elements and blocks of elements are combined
//   Narrow start()       the value of a reduction of nothing
//   Narrow element(p)    the element at p as an operand
//   V combine(V, V)      associative and commutative, for both types
#pragma once

#include <opsmith/element_types.h>
#include <opsmith/host_access.h>
#include <opsmith/reduction.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace opsmith::hosted {

// Note [Accuracy of sums]
// Blocks of at most kBlock elements are added in the compute type in kLanes interleaved partial sums, and the
// blocks' sums in a wider type: double for float. The error is that of adding kBlock / kLanes = 16 numbers,
// however long the sum is: no more than ATen's cascade.
inline constexpr int64_t kBlock = 1024;
inline constexpr int64_t kLanes = 64;
// Columns that are reduced side by side when the reduced axis is not the dense one.
inline constexpr int64_t kColumns = 256;
inline constexpr int64_t kGrain = 32768;

template <class Policy, class T>
typename Policy::Narrow reduce_block(const T* p, int64_t stride, int64_t n) {
  using Narrow = typename Policy::Narrow;
  Narrow total = Policy::start();
  int64_t k = 0;
  if (stride == 1 && n >= kLanes) {
    Narrow lanes[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = Policy::element(p + l);
    }
    for (k = kLanes; k + kLanes <= n; k += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) {
        lanes[l] = Policy::combine(lanes[l], Policy::element(p + k + l));
      }
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) {
        lanes[l] = Policy::combine(lanes[l], lanes[l + half]);
      }
    }
    total = lanes[0];
  }
  for (; k < n; ++k) {
    total = Policy::combine(total, Policy::element(p + k * stride));
  }
  return total;
}

template <class Policy, class T>
typename Policy::Wide reduce_row(const T* p, int64_t stride, int64_t n) {
  using Wide = typename Policy::Wide;
  Wide total = Policy::start();
  for (int64_t k = 0; k < n; k += kBlock) {
    total =
        Policy::combine(total, Wide(reduce_block<Policy>(p + k * stride, stride, std::min(kBlock, n - k))));
  }
  return total;
}

// Takes each element of the result, with its offset in elements from the start of the result. By reference
// and not a template parameter: the loops are many and should be compiled once for an element type.
template <class Value>
using Write = c10::function_ref<void(int64_t offset, Value value)>;

// Each result from rows of the densest reduced axis. A single long row is shared between threads by pieces of
// a fixed length, so that the result does not depend on how many there are.
template <class Policy, class T>
void reduce_rows(const Reduction& r, const T* in, Write<typename Policy::Wide> write) {
  using Wide = typename Policy::Wide;
  const Axis row = r.reduced.empty() ? Axis{1, 1} : r.reduced.back();
  Axes outer = r.reduced;
  if (!outer.empty()) {
    outer.pop_back();
  }
  const int64_t rows = product_of_sizes(outer);
  if (r.outputs == 1 && rows == 1 && row.size >= 2 * kGrain) {
    std::vector<Wide> pieces(static_cast<size_t>((row.size + kGrain - 1) / kGrain));
    at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t first = piece * kGrain;
        pieces[static_cast<size_t>(piece)] =
            reduce_row<Policy>(in + first * row.in, row.in, std::min(kGrain, row.size - first));
      }
    });
    Wide total = Policy::start();
    for (const Wide piece : pieces) {
      total = Policy::combine(total, piece);
    }
    return write(0, total);
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, r.length));
  at::parallel_for(0, r.outputs, grain, [&](int64_t begin, int64_t end) {
    walk(r.kept, begin, end, [&](const Position& at) {
      Wide total = Policy::start();
      walk(outer, 0, rows, [&](const Position& inner) {
        total = Policy::combine(total, reduce_row<Policy>(in + at.in + inner.in, row.in, row.size));
      });
      write(at.out[0], total);
    });
  });
}

// Results that lie next to each other, kColumns at a time: the densest axis is one that stays.
template <class Policy, class T>
void reduce_columns(const Reduction& r, const T* in, Write<typename Policy::Wide> write) {
  using Narrow = typename Policy::Narrow;
  using Wide = typename Policy::Wide;
  const Axis column = r.kept.back();
  Axes outer = r.kept;
  outer.pop_back();
  const int64_t blocks = (column.size + kColumns - 1) / kColumns;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, r.length * kColumns));
  at::parallel_for(0, product_of_sizes(outer) * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % blocks * kColumns;
      const int64_t width = std::min(kColumns, column.size - first);
      walk(outer, task / blocks, task / blocks + 1, [&](const Position& at) {
        Narrow narrow[kColumns];
        Wide total[kColumns];
        std::fill_n(narrow, kColumns, Policy::start());
        std::fill_n(total, kColumns, Wide(Policy::start()));
        int64_t pending = 0;
        const auto flush = [&] {
          for (int64_t j = 0; j < width; ++j) {
            total[j] = Policy::combine(total[j], Wide(narrow[j]));
            narrow[j] = Policy::start();
          }
          pending = 0;
        };
        const T* const base = in + at.in + first * column.in;
        walk(r.reduced, 0, r.length, [&](const Position& inner) {
          const T* const p = base + inner.in;
          if (column.in == 1) {
            for (int64_t j = 0; j < width; ++j) {
              narrow[j] = Policy::combine(narrow[j], Policy::element(p + j));
            }
          } else {
            for (int64_t j = 0; j < width; ++j) {
              narrow[j] = Policy::combine(narrow[j], Policy::element(p + j * column.in));
            }
          }
          if (++pending == kBlock / kLanes) {
            flush();
          }
        });
        flush();
        for (int64_t j = 0; j < width; ++j) {
          write(at.out[0] + (first + j) * column.out[0], total[j]);
        }
      });
    }
  });
}

template <class Policy, class T>
void reduce(Reduction r, const T* in, Write<typename Policy::Wide> write) {
  if (r.outputs == 0) {
    return;
  }
  if (r.length == 0) {
    walk(r.kept, 0, r.outputs, [&](const Position& at) { write(at.out[0], Policy::start()); });
    return;
  }
  r.order_by_stride();
  const auto densest = [](const Axes& axes) {
    return axes.empty() ? std::numeric_limits<int64_t>::max() : axes.back().in;
  };
  if (densest(r.kept) < densest(r.reduced) && !r.reduced.empty()) {
    reduce_columns<Policy>(r, in, write);
  } else {
    reduce_rows<Policy>(r, in, write);
  }
}

}  // namespace opsmith::hosted
