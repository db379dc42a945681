// The part of iteration.h that knows no element types: shapes, axes, tiles and threads.
#include "iteration.h"

#include <algorithm>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

namespace opsmith::portable {

bool resize(KernelRuntimeContext& context, Tensor& out, const executorch::aten::SizesType* sizes, int rank) {
  if (executorch::runtime::resize_tensor(out, {sizes, static_cast<size_t>(rank)}) == Error::Ok) {
    return true;
  }
  // resize_tensor has logged the sizes: the last message is what a user reads, so it says what to do as well.
  return refuse(context, Error::InvalidArgument,
                "out has %d dimensions and %lld elements, and cannot be resized to the result's shape",
                static_cast<int>(out.dim()), static_cast<long long>(out.numel()));
}

bool refuse_rank(KernelRuntimeContext& context, int rank) {
  return refuse(context, Error::InvalidArgument, "Tensors of %d dimensions are not supported: at most %d",
                rank, kMaxDims);
}

bool resize_to_broadcast(KernelRuntimeContext& context, Tensor& out,
                         std::initializer_list<const Tensor*> inputs) {
  executorch::aten::SizesType sizes[kMaxDims];
  int rank = 0;
  for (const Tensor* input : inputs) {
    rank = std::max(rank, static_cast<int>(input->dim()));
  }
  if (rank > kMaxDims) {
    return refuse_rank(context, rank);
  }
  std::fill_n(sizes, rank, 1);
  for (const Tensor* input : inputs) {
    const int shift = rank - static_cast<int>(input->dim());
    for (int d = shift; d < rank; ++d) {
      const auto size = input->sizes()[static_cast<size_t>(d - shift)];
      if (sizes[d] == 1) {
        sizes[d] = size;
      } else if (size != 1 && size != sizes[d]) {
        return refuse(context, Error::InvalidArgument,
                      "The size of tensor a (%d) must match the size of tensor b (%d) at non-singleton "
                      "dimension %d",
                      static_cast<int>(sizes[d]), static_cast<int>(size), d);
      }
    }
  }
  return resize(context, out, sizes, rank);
}

Walk::Walk(const Tensor* const* tensors, int count) : operands(count) {
  const Tensor& shape = *tensors[0];
  const int dims = static_cast<int>(shape.dim());
  for (int d = 0; d < dims; ++d) {
    Axis axis{shape.sizes()[static_cast<size_t>(d)], {}};
    for (int i = 0; i < count; ++i) {
      const int own = d - dims + static_cast<int>(tensors[i]->dim());
      const bool stretches = own < 0 || tensors[i]->sizes()[static_cast<size_t>(own)] == 1;
      axis.stride[static_cast<size_t>(i)] = stretches ? 0 : tensors[i]->strides()[static_cast<size_t>(own)];
    }
    add(axis);
  }
  order();
  join();
}

// By insertion: there are few axes, mostly in order, and std::stable_sort allocates.
void Walk::order() {
  for (int k = 1; k < rank; ++k) {
    for (size_t j = static_cast<size_t>(k); j > 0 && axes[j - 1].stride[0] < axes[j].stride[0]; --j) {
      std::swap(axes[j - 1], axes[j]);
    }
  }
}

void Walk::join() {
  int joined = 0;
  for (int k = 0; k < rank; ++k) {
    const Axis inner = axes[static_cast<size_t>(k)];
    if (joined > 0) {
      Axis& outer = axes[static_cast<size_t>(joined - 1)];
      bool one_stride = true;
      for (size_t i = 0; i < static_cast<size_t>(operands); ++i) {
        one_stride = one_stride && outer.stride[i] == inner.stride[i] * inner.size;
      }
      if (one_stride) {
        outer = {outer.size * inner.size, inner.stride};
        continue;
      }
    }
    axes[static_cast<size_t>(joined++)] = inner;
  }
  rank = joined;
}

int64_t Walk::numel() const {
  int64_t product = 1;
  for (int d = 0; d < rank; ++d) {
    product *= axes[static_cast<size_t>(d)].size;
  }
  return product;
}

Tiles::Tiles(const Walk& walk, int64_t size) : walk_(walk) {
  static constexpr Axis kSingle{1, {}};
  column_ = walk.rank > 0 ? walk.axes[static_cast<size_t>(walk.rank - 1)] : kSingle;
  row_ = walk.rank > 1 ? walk.axes[static_cast<size_t>(walk.rank - 2)] : kSingle;
  const int64_t numel = walk.numel();
  if (numel == 0) {
    rows_ = columns_ = in_row_ = in_plane_ = 1;
    count_ = 0;
    return;
  }
  rows_ = std::min(row_.size, std::max<int64_t>(1, size / column_.size));
  columns_ = std::min(column_.size, size);
  in_row_ = (column_.size + columns_ - 1) / columns_;
  in_plane_ = (row_.size + rows_ - 1) / rows_ * in_row_;
  count_ = numel / (row_.size * column_.size) * in_plane_;
}

Tiles::Tile Tiles::operator[](int64_t index) const {
  const int64_t plane = index / in_plane_;
  const int64_t in_plane = index % in_plane_;
  const int64_t first_row = in_plane / in_row_ * rows_;
  const int64_t first_column = in_plane % in_row_ * columns_;
  Tile tile;
  tile.rows = std::min(rows_, row_.size - first_row);
  tile.columns = std::min(columns_, column_.size - first_column);
  tile.first = (plane * row_.size + first_row) * column_.size + first_column;
  const auto operands = static_cast<size_t>(walk_.operands);
  for (size_t i = 0; i < operands; ++i) {
    tile.offset[i] = first_row * row_.stride[i] + first_column * column_.stride[i];
  }
  int64_t rest = plane;
  for (int d = walk_.rank - 2; d-- > 0;) {
    const Axis& axis = walk_.axes[static_cast<size_t>(d)];
    const int64_t at = rest % axis.size;
    rest /= axis.size;
    for (size_t i = 0; i < operands; ++i) {
      tile.offset[i] += at * axis.stride[i];
    }
  }
  return tile;
}

void parallel(int64_t n, int64_t grain, executorch::runtime::FunctionRef<void(int64_t, int64_t)> f) {
  if (n <= grain) {
    if (n > 0) {
      f(0, n);
    }
    return;
  }
  executorch::extension::parallel_for(0, n, grain, f);
}

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

}  // namespace

bool iterate(KernelRuntimeContext& context, const Tensor* const* tensors, const ScalarType* computed,
             int count, Rounding rounding, Loop loop, const void* f) {
  if (tensors[0]->dim() > kMaxDims) {
    return refuse_rank(context, static_cast<int>(tensors[0]->dim()));
  }
  if (tensors[0]->numel() == 0) {
    return true;
  }
  const Walk walk(tensors, count);
  const Tiles tiles(walk, kTile);
  std::array<Operand, kMaxOperands> operands;
  bool in_place = true;
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
    if (operands[k].convert == nullptr) {
      return refuse(context, Error::NotSupported,
                    "Operands of dtype %s that are calculated with as %s are not part of this build",
                    name_of(dtype), name_of(computed[i]));
    }
    if (i == 0 && !is_dense) {
      return refuse(context, Error::NotSupported,
                    "An out whose elements overlap or leave gaps is not supported");
    }
  }
  if (in_place && walk.rank <= 1) {
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
  parallel(tiles.count(), std::max<int64_t>(1, kGrain / tiles.elements()), [&](int64_t begin, int64_t end) {
    alignas(64) unsigned char buffers[kMaxOperands][kTile * sizeof(int64_t)];
    std::array<bool, kMaxOperands> is_filled{};
    for (int64_t index = begin; index < end; ++index) {
      const Tiles::Tile tile = tiles[index];
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

bool copy_elements(KernelRuntimeContext& context, Tensor& out, const Tensor& self) {
  if (out.dim() > kMaxDims) {
    return refuse_rank(context, static_cast<int>(out.dim()));
  }
  if (out.numel() == 0) {
    return true;
  }
  const Tensor* const tensors[] = {&out, &self};
  const Walk walk(tensors, 2);
  const Tiles tiles(walk, kTile);
  const Convert convert = conversion(self.scalar_type(), out.scalar_type());
  if (convert == nullptr || !tiles.is_dense(0)) {
    return refuse(context, Error::NotSupported, "Copies from %s to %s%s are not part of this build",
                  name_of(self.scalar_type()), name_of(out.scalar_type()),
                  convert == nullptr ? "" : " whose elements overlap or leave gaps");
  }
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  const char* const from = static_cast<const char*>(self.const_data_ptr());
  const auto to_size = static_cast<int64_t>(executorch::runtime::elementSize(out.scalar_type()));
  const auto from_size = static_cast<int64_t>(executorch::runtime::elementSize(self.scalar_type()));
  parallel(tiles.count(), std::max<int64_t>(1, kGrain / tiles.elements()), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Tiles::Tile tile = tiles[index];
      convert(from + tile.offset[1] * from_size, tiles.plane(tile, 1), to + tile.offset[0] * to_size);
    }
  });
  return true;
}

}  // namespace opsmith::portable
