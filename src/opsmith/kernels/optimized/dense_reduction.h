// Reductions of a dense tensor whose results are made of states: of runs of neighbouring elements, or of
// columns over rows, in parts that do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/temporary.h"
#include "reduction_layout.h"
#include "threads.h"

namespace opsmith::optimized {

// A reduction has
//   State       of a result, which start() makes;
//   add_runs    (x, rows, stride, n, first, states): `rows` runs of n elements to as many states;
//   add_columns (x, rows, stride, columns, first, states): each column's elements to its state;
//   merge       (state, later): what later elements came to;
//   put         (offset, stride, states, n): results whose places begin at the offset.
// `first` is the place of the first element, or row, among those of a result where these lie along one
// dimension.
template <class T, class Reduction>
class DenseReduction {
 public:
  using State = typename Reduction::State;

  DenseReduction(const Reduction& reduction, const T* x, const ReductionParts& parts)
      : reduction_(reduction), x_(x), parts_(parts) {}

  void run(KernelRuntimeContext& context) const {
    if (!parts_.is_inner_reduced()) {
      columns(context);
    } else if (parts_.kept.numel() == 1 && parts_.reduced.numel() == 1) {
      everything(context);
    } else {
      runs();
    }
  }

 private:
  static constexpr int64_t kPart = 65536;
  static constexpr int64_t kTogether = 64;
  static constexpr int64_t kColumns = 256;
  static constexpr int64_t kRowParts = 8;

  void everything(KernelRuntimeContext& context) const {
    const int64_t n = parts_.inner.size, parts = ceil_divided(n, kPart);
    State whole;
    const auto states = parts == 1 ? Temporary<State>(&whole) : temporary<State>(context, parts);
    if (states.get() == nullptr) {
      return;
    }
    parallel(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        states[part] = reduction_.start();
        reduction_.add_runs(x_ + part * kPart, 1, 0, std::min(kPart, n - part * kPart), part * kPart,
                            states.get() + part);
      }
    });
    for (int64_t part = 1; part < parts; ++part) {
      reduction_.merge(states[0], states[part]);
    }
    reduction_.put(0, 1, states.get(), 1);
  }

  // Results that are neighbours are computed together.
  void runs() const {
    ReductionLayout outer = parts_.kept;
    const auto neighbours = outer.pop();
    const int64_t runs = parts_.reduced.numel(), length = parts_.inner.size * runs;
    const int64_t together =
        std::max<int64_t>(1, std::min({kTogether, neighbours.size, row_grain_size(length)}));
    const int64_t pieces = ceil_divided(neighbours.size, together);
    parallel(outer.numel() * pieces, row_grain_size(length * together), [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const auto [outer_from, outer_to] = outer.offsets(piece / pieces);
        const int64_t first = piece % pieces * together;
        const int64_t count = std::min(together, neighbours.size - first);
        State states[kTogether];
        std::fill_n(states, count, reduction_.start());
        const auto* const from = x_ + outer_from + first * neighbours.stride[0];
        parts_.reduced.for_each(0, runs, [&](const auto& offset, const auto&) {
          reduction_.add_runs(from + offset[0], count, neighbours.stride[0], parts_.inner.size, 0, states);
        });
        reduction_.put(outer_to + first * neighbours.stride[1], neighbours.stride[1], states, count);
      }
    });
  }

  // The rows begin…end of those that are reduced: neighbours in one call.
  [[gnu::noinline]] void add_rows(const T* x, int64_t begin, int64_t end, int64_t columns,
                                  State* states) const {
    const int64_t stride = parts_.reduced.innermost().stride[0];
    int64_t row = begin;
    parts_.reduced.for_each_run(begin, end, end - begin, [&](const auto& at, const auto&, int64_t rows) {
      reduction_.add_columns(x + at[0], rows, stride, columns, row, states);
      row += rows;
    });
  }

  // Few results of many rows: the rows are divided, and what comes of each part merged.
  void divided_columns(KernelRuntimeContext& context) const {
    const int64_t columns = parts_.inner.size, rows = parts_.reduced.numel();
    const auto states = temporary<State>(context, kRowParts * columns);
    if (states.get() == nullptr) {
      return;
    }
    parallel(kRowParts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        State* const own = states.get() + part * columns;
        std::fill_n(own, columns, reduction_.start());
        add_rows(x_, rows * part / kRowParts, rows * (part + 1) / kRowParts, columns, own);
      }
    });
    for (int64_t part = 1; part < kRowParts; ++part) {
      for (int64_t i = 0; i < columns; ++i) {
        reduction_.merge(states[i], states[part * columns + i]);
      }
    }
    reduction_.put(0, parts_.inner.stride[1], states.get(), columns);
  }

  void columns(KernelRuntimeContext& context) const {
    const int64_t columns = parts_.inner.size, rows = parts_.reduced.numel();
    const int64_t pieces = ceil_divided(columns, kColumns);
    if (parts_.kept.numel() == 1 && pieces == 1 && rows * columns >= 2 * kGrain) {
      divided_columns(context);
      return;
    }
    const int64_t cost = rows * std::min(columns, kColumns);
    parallel(parts_.kept.numel() * pieces, row_grain_size(cost), [&](int64_t begin, int64_t end) {
      State states[kColumns];
      for (int64_t piece = begin; piece < end; ++piece) {
        const auto [from, to] = parts_.kept.offsets(piece / pieces);
        const int64_t first = piece % pieces * kColumns;
        const int64_t n = std::min(kColumns, columns - first);
        std::fill_n(states, n, reduction_.start());
        add_rows(x_ + from + first, 0, rows, n, states);
        reduction_.put(to + first * parts_.inner.stride[1], parts_.inner.stride[1], states, n);
      }
    });
  }

  const Reduction& reduction_;
  const T* x_;
  const ReductionParts& parts_;
};

template <class T, class Reduction>
void reduce_dense(KernelRuntimeContext& context, const Reduction& reduction, const T* x,
                  const ReductionParts& parts) {
  DenseReduction<T, Reduction>(reduction, x, parts).run(context);
}

}  // namespace opsmith::optimized
