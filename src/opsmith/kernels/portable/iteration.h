// Element-by-element kernels over dense Tensors of any dim orders and dtypes: broadcasting, strides, mixed
// dtypes and threads. A kernel gives one function of one element:
//
//   pointwise<C(C, C)>(context, out, [](C a, C b) { return a + b; }, self, other);
//
// Note [Tiles]
// A call is a walk over tiles of at most kTile elements of `out`, in the order in which they lie in memory.
// An operand whose elements lie next to each other and have the function's type is read (or written) in
// place; any other is copied through a dense buffer of a tile's size, by the loop of conversion.h for its
// dtypes. So there is one loop for each operator and compute type, over dense arrays, which the compiler
// vectorises; no product of dtypes is instantiated, and everything but that loop is compiled once for the
// library.
#pragma once

#include "conversion.h"

#include <array>
#include <cstddef>
#include <initializer_list>
#include <tuple>
#include <utility>

#include <executorch/runtime/core/function_ref.h>

namespace opsmith::portable {

inline constexpr int kMaxOperands = 5;  // out and at most four inputs
inline constexpr int kMaxDims = static_cast<int>(executorch::runtime::kTensorDimensionLimit);
inline constexpr int64_t kGrain = 32768;  // elements below which a second thread does not pay
inline constexpr int64_t kTile = 512;

// Refuses a call for the rank of a Tensor.
bool refuse_rank(KernelRuntimeContext& context, int rank);

// Gives `out` the shape that the inputs broadcast to; refuses shapes that do not, and an out that cannot have
// the shape. Sizes of 1, and dimensions that are missing on the left, stretch.
bool resize_to_broadcast(KernelRuntimeContext& context, Tensor& out,
                         std::initializer_list<const Tensor*> inputs);

// Gives `out` the sizes; refuses where it cannot have them.
bool resize(KernelRuntimeContext& context, Tensor& out, const executorch::aten::SizesType* sizes, int rank);

inline bool resize_like(KernelRuntimeContext& context, Tensor& out, const Tensor& like) {
  return resize(context, out, like.sizes().data(), static_cast<int>(like.dim()));
}

// One axis of a walk: its length and each operand's stride in elements (0 where the operand stretches).
struct Axis {
  int64_t size;
  std::array<int64_t, kMaxOperands> stride;
};

// Axes over which a number of operands are walked; the last runs fastest. Axes of length 1 are left out.
struct Walk {
  int rank = 0;
  int operands = 0;
  std::array<Axis, kMaxDims> axes;

  Walk() = default;
  // Over tensors, of which the first has the shape: its elements are met as they lie in memory.
  Walk(const Tensor* const* tensors, int count);

  void add(const Axis& axis) {
    if (axis.size != 1) {
      axes[static_cast<size_t>(rank++)] = axis;
    }
  }
  // Orders the axes by falling stride of the first operand, so that the last is the densest.
  void order();
  // Joins neighbouring axes that one stride walks for every operand.
  void join();
  int64_t numel() const;
};

// A walk in tiles: planes of the last two axes, cut into a part of one row or a number of whole rows.
class Tiles {
 public:
  struct Tile {
    int64_t rows;
    int64_t columns;
    int64_t first;  // the position of its first element in the walk
    std::array<int64_t, kMaxOperands> offset;
  };

  // Tiles of at most max(`size`, one row's part of that length) elements.
  Tiles(const Walk& walk, int64_t size);

  int64_t count() const { return count_; }
  int64_t elements() const { return rows_ * columns_; }  // of a tile that no edge cuts off
  Tile operator[](int64_t index) const;
  Plane plane(const Tile& tile, size_t operand) const {
    return {tile.rows, tile.columns, row_.stride[operand], column_.stride[operand]};
  }
  // Whether the operand's elements of any tile lie next to each other.
  bool is_dense(size_t operand) const {
    return (column_.size == 1 || column_.stride[operand] == 1) &&
           (rows_ == 1 || row_.stride[operand] == column_.size);
  }

 private:
  const Walk& walk_;
  Axis column_;
  Axis row_;
  int64_t rows_;
  int64_t columns_;
  int64_t in_row_;
  int64_t in_plane_;
  int64_t count_;
};

// Runs f(begin, end) over parts of [0, n), in threads where there are at least `grain` items for each.
void parallel(int64_t n, int64_t grain, executorch::runtime::FunctionRef<void(int64_t, int64_t)> f);

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

// Walks `operands` (out first), of which the function takes and gives `computed` dtypes.
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
// f must be safe to call from several threads at once. False, with the call refused, where a conversion was
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

// out = self for every element, converted to out's dtype; `out` has its shape, to which self's broadcasts.
bool copy_elements(KernelRuntimeContext& context, Tensor& out, const Tensor& self);

}  // namespace opsmith::portable
