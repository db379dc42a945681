// The part of iteration.h that knows no element types: operands, tiles and threads.
#include "iteration.h"

#include <algorithm>

namespace opsmith::portable {

namespace detail {
namespace {

struct Operand {
  char* data;
  int64_t element_size;
  int64_t computed_size;
  Convert convert;    // null: the function's arrays are the operand's memory
  Convert round;      // to the dtype that `convert` takes elements from; null: they have it
  bool is_one_value;  // the same element throughout, so that it is converted once

  // The elements of the plane in a buffer of the function's type.
  void read(const char* from, const Plane& plane, void* buffer) const {
    constexpr int64_t kWorthwhile = 16;
    if (plane.column_stride == 0 && plane.columns >= kWorthwhile) {
      char* to = static_cast<char*>(buffer);
      for (int64_t r = 0; r < plane.rows; ++r, to += plane.columns * computed_size) {
        read(from + r * plane.row_stride * element_size, {1, 1, 0, 0}, to);
        repeat(static_cast<size_t>(computed_size), to, plane.columns);
      }
      return;
    }
    if (round == nullptr) {
      return convert(from, plane, buffer);
    }
    alignas(16) unsigned char rounded[kTile * sizeof(uint16_t)];
    round(from, plane, rounded);
    convert(rounded, {1, plane.rows * plane.columns, 0, 1}, buffer);
  }
};

StridedIterator<kMaxOperands> strided_over_out(const Tensor* const* tensors, int count) {
  StridedIterator<kMaxOperands> all;
  for (int64_t d = 0; d < tensors[0]->dim(); ++d) {
    std::array<int64_t, kMaxOperands> stride{};
    for (int i = 0; i < count; ++i) {
      stride[static_cast<size_t>(i)] = broadcast_stride(*tensors[i], d, tensors[0]->dim());
    }
    all.add(tensors[0]->sizes()[static_cast<size_t>(d)], stride);
  }
  all.reorder(0);
  all.coalesce();
  return all;
}

// Whether there is a conversion between the dtypes; rejects the call where there is none.
bool is_part(KernelRuntimeContext& context, Convert conversion, ScalarType dtype, ScalarType computed) {
  OPSMITH_CHECK(context, conversion != nullptr, NotSupported, false,
                "Operands of dtype %s that are calculated with as %s are not part of this build",
                name_of(dtype), name_of(computed));
  return true;
}

// Of a call without elements, whose dtypes ExecuTorch's kernels look at too.
bool are_dtypes_known(KernelRuntimeContext& context, const Tensor* const* tensors, const ScalarType* computed,
                      int count) {
  for (int i = 0; i < count; ++i) {
    const ScalarType dtype = tensors[i]->scalar_type();
    const ScalarType from = i == 0 ? computed[0] : dtype;
    const ScalarType to = i == 0 ? dtype : computed[i];
    if (from != to && !is_part(context, conversion(from, to), dtype, computed[i])) {
      return false;
    }
  }
  return true;
}

// The operands; `in_place` gets whether all arrays of the function are the operands' memory. False with the
// call rejected.
bool make_operands(KernelRuntimeContext& context, const Tensor* const* tensors, const ScalarType* computed,
                   int count, Rounding rounding, const TileIterator<kMaxOperands>& tiles,
                   std::array<Operand, kMaxOperands>& operands, bool& in_place) {
  in_place = true;
  const bool is_rounding = compute_dtype(rounding.common) != rounding.common;
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    const ScalarType dtype = tensors[i]->scalar_type();
    operands[k] = {static_cast<char*>(tensors[i]->mutable_data_ptr()),
                   static_cast<int64_t>(executorch::runtime::elementSize(dtype)),
                   static_cast<int64_t>(executorch::runtime::elementSize(computed[i])),
                   nullptr,
                   nullptr,
                   i > 0 && tensors[i]->numel() == 1 && tensors[0]->numel() > 1};
    const bool is_dense = tiles.is_dense(k) && !operands[k].is_one_value;
    const bool is_rounded = i > 0 && is_rounding && dtype != rounding.common &&
                            computed[i] == compute_dtype(rounding.common) &&
                            !(i == rounding.exact && tensors[i]->numel() == 1);
    if (dtype == computed[i] && is_dense && !is_rounded) {
      continue;
    }
    in_place = false;
    ScalarType from = dtype;
    if (is_rounded) {
      operands[k].round = conversion(dtype, rounding.common);
      from = operands[k].round != nullptr ? rounding.common : dtype;
    }
    operands[k].convert = i == 0 ? conversion(computed[i], dtype) : conversion(from, computed[i]);
    if (!is_part(context, operands[k].convert, dtype, computed[i])) {
      return false;
    }
    OPSMITH_CHECK(context, i != 0 || is_dense, NotSupported, false,
                  "An out whose elements overlap or leave gaps is not supported");
  }
  return true;
}

}  // namespace

bool iterate(KernelRuntimeContext& context, const Tensor* const* tensors, const ScalarType* computed,
             int count, Rounding rounding, Loop loop, const void* f) {
  if (tensors[0]->dim() > kMaxDims) {
    return reject_rank(context, tensors[0]->dim());
  }
  if (tensors[0]->numel() == 0) {
    return !in_executorch() || are_dtypes_known(context, tensors, computed, count);
  }
  const StridedIterator<kMaxOperands> all = strided_over_out(tensors, count);
  const TileIterator<kMaxOperands> tiles(all, kTile);
  std::array<Operand, kMaxOperands> operands;
  bool in_place;
  if (!make_operands(context, tensors, computed, count, rounding, tiles, operands, in_place)) {
    return false;
  }
  if (in_place && all.rank() <= 1) {
    // Every operand is one row of memory: threads share it without tiles.
    parallel(tensors[0]->numel(), kGrain, [&](int64_t begin, int64_t end) {
      const void* in[kMaxOperands];
      for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
        in[i - 1] = operands[i].data + begin * operands[i].element_size;
      }
      loop(f, operands[0].data + begin * operands[0].element_size, in, end - begin);
    });
    return true;
  }
  parallel(tiles.count(), grain_size(tiles.elements()), [&](int64_t begin, int64_t end) {
    alignas(64) unsigned char buffers[kMaxOperands][kTile * sizeof(int64_t)];
    std::array<bool, kMaxOperands> is_filled{};
    for (int64_t index = begin; index < end; ++index) {
      const auto tile = tiles[index];
      const int64_t n = tile.rows * tile.columns;
      const void* in[kMaxOperands];
      for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
        const Operand& operand = operands[i];
        const char* const data = operand.data + tile.offset[i] * operand.element_size;
        in[i - 1] = operand.convert == nullptr ? static_cast<const void*>(data) : buffers[i];
        if (operand.convert != nullptr && !is_filled[i]) {
          operand.read(data, operand.is_one_value ? Plane{1, tiles.elements(), 0, 0} : tiles.plane(tile, i),
                       buffers[i]);
          is_filled[i] = operand.is_one_value;
        }
      }
      char* const out = operands[0].data + tile.offset[0] * operands[0].element_size;
      if (operands[0].convert == nullptr) {
        loop(f, out, in, n);
      } else {
        loop(f, buffers[0], in, n);
        operands[0].convert(buffers[0], {1, n, 0, 1}, out);
      }
    }
  });
  return true;
}

}  // namespace detail

}  // namespace opsmith::portable
