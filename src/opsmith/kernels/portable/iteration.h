// Element-by-element kernels over dense Tensors of any dim orders and dtypes: broadcasting, strides, mixed
// dtypes and threads. A kernel gives one function of one element:
//
//   pointwise<C(C, C)>(context, out, [](C a, C b) { return a + b; }, self, other);
//
// Note [Tiles]
// A call is an iteration over tiles of at most kTile elements of `out`, in the order in which they lie in
// memory. An operand whose elements lie next to each other and have the function's type is read (or written)
// in place; any other is copied through a dense buffer of a tile's size, by the loop of conversion.h for its
// dtypes. So there is one loop for each operator and compute type, over dense arrays, which the compiler
// vectorises; no product of dtypes is instantiated, and everything but that loop is compiled once for the
// library.
#pragma once

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "conversion.h"

#include <array>
#include <cstddef>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace opsmith::portable {

inline constexpr size_t kMaxOperands = 5;  // out and at most four inputs

// An iteration in tiles: planes of the last two dimensions, cut into a part of one row or a number of whole
// rows.
template <size_t kOperands>
class TileIterator {
 public:
  struct Tile {
    int64_t rows;
    int64_t columns;
    int64_t first;  // the position of its first element in the iteration
    std::array<int64_t, kOperands> offset;
  };

  // TileIterator of at most `size` elements.
  TileIterator(const StridedIterator<kOperands>& all, int64_t size)
      : all_(all), column_(all.innermost(0)), row_(all.innermost(1)) {
    const int64_t numel = all.numel();
    if (numel == 0) {
      rows_ = columns_ = in_row_ = in_plane_ = 1;
      count_ = 0;
      return;
    }
    rows_ = std::min(row_.size, std::max<int64_t>(1, size / column_.size));
    columns_ = std::min(column_.size, size);
    in_row_ = ceil_divided(column_.size, columns_);
    in_plane_ = ceil_divided(row_.size, rows_) * in_row_;
    count_ = numel / (row_.size * column_.size) * in_plane_;
  }

  int64_t count() const { return count_; }
  int64_t elements() const { return rows_ * columns_; }  // of a tile that no edge cuts off
  Tile operator[](int64_t index) const {
    const int64_t plane = index / in_plane_;
    const int64_t in_plane = index % in_plane_;
    const int64_t first_row = in_plane / in_row_ * rows_;
    const int64_t first_column = in_plane % in_row_ * columns_;
    Tile tile;
    tile.rows = std::min(rows_, row_.size - first_row);
    tile.columns = std::min(columns_, column_.size - first_column);
    tile.first = (plane * row_.size + first_row) * column_.size + first_column;
    tile.offset = all_.offsets(plane, 2);
    for (size_t i = 0; i < kOperands; ++i) {
      tile.offset[i] += first_row * row_.stride[i] + first_column * column_.stride[i];
    }
    return tile;
  }
  Plane plane(const Tile& tile, size_t operand) const {
    return {tile.rows, tile.columns, row_.stride[operand], column_.stride[operand]};
  }
  // Whether the operand's elements of any tile lie next to each other.
  bool is_dense(size_t operand) const {
    return (column_.size == 1 || column_.stride[operand] == 1) &&
           (rows_ == 1 || row_.stride[operand] == column_.size);
  }

 private:
  using Dimension = typename StridedIterator<kOperands>::Dimension;

  const StridedIterator<kOperands>& all_;
  Dimension column_;
  Dimension row_;
  int64_t rows_;
  int64_t columns_;
  int64_t in_row_;
  int64_t in_plane_;
  int64_t count_;
};

// Where the common dtype is Half or BFloat16, ATen converts every operand to it first. Kernels calculate in
// float, so operands of other dtypes are rounded on their way: all but the `exact` one (1 is the first input)
// if that has a single element, as a number has that add, sub, mul and div take.
struct Rounding {
  ScalarType common = ScalarType::Undefined;
  int exact = 0;
};

namespace detail {

// out[k] = f(in[0][k], ...) for k < n, with arrays of the types that f takes and returns.
using Loop = void (*)(const void* f, void* out, const void* const* in, int64_t n);

// Iterates over `operands` (out first), of which the function takes and gives `computed` dtypes.
bool iterate(KernelRuntimeContext& context, const Tensor* const* operands, const ScalarType* computed,
             int count, Rounding rounding, Loop loop, const void* f);

template <class Signature>
struct Pointwise;

template <class R, class... A>
struct Pointwise<R(A...)> {
  static constexpr size_t kOperands = sizeof...(A) + 1;
  static constexpr ScalarType kComputed[] = {dtype_of<R>, dtype_of<A>...};

  template <class F>
  static void loop(const void* f, void* out, const void* const* in, int64_t n) {
    over(*static_cast<const F*>(f), static_cast<R*>(out), in, n, std::index_sequence_for<A...>{});
  }

  template <class F, size_t... I>
  static void over(const F f, R* out, const void* const* in, int64_t n, std::index_sequence<I...>) {
    const std::tuple<const A*...> arrays{static_cast<const A*>(in[I])...};
    // ivdep: in-place calls read and write the very same elements, which is no dependence between iterations.
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      out[k] = f(load_element(std::get<I>(arrays) + k)...);
    }
  }
};

}  // namespace detail

// out = f(inputs...) for every element. Signature is f's: compute types (no Half and BFloat16), to which the
// operands' elements are converted, and from which results are converted to out's dtype. `out` has its shape;
// f must be safe to call from several threads at once. False, with the call rejected, where a conversion was
// not selected.
template <class Signature, class F, class... Inputs>
bool pointwise(KernelRuntimeContext& context, Rounding rounding, Tensor& out, const F& f,
               const Inputs&... inputs) {
  using P = detail::Pointwise<Signature>;
  static_assert(sizeof...(Inputs) + 1 == P::kOperands && P::kOperands <= kMaxOperands);
  const Tensor* const operands[] = {&out, &inputs...};
  return detail::iterate(context, operands, P::kComputed, static_cast<int>(P::kOperands), rounding,
                         &P::template loop<F>, &f);
}

template <class Signature, class F, class... Inputs>
bool pointwise(KernelRuntimeContext& context, Tensor& out, const F& f, const Inputs&... inputs) {
  return pointwise<Signature>(context, Rounding{}, out, f, inputs...);
}

}  // namespace opsmith::portable
