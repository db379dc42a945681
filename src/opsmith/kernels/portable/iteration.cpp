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

bool resize_to_broadcast(KernelRuntimeContext& context, Tensor& out,
                         std::initializer_list<const Tensor*> inputs) {
  executorch::aten::SizesType sizes[kMaxDims];
  int rank = 0;
  for (const Tensor* input : inputs) {
    rank = std::max(rank, static_cast<int>(input->dim()));
  }
  if (rank > kMaxDims) {
    return refuse(context, Error::InvalidArgument, "Tensors of %d dimensions are not supported: at most %d",
                  rank, kMaxDims);
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

Walk::Walk(const Tensor* const* operands, int count) {
  const Tensor& shape = *operands[0];
  const int dims = static_cast<int>(shape.dim());
  numel = shape.numel();
  for (int d = 0; d < dims; ++d) {
    Axis axis{shape.sizes()[static_cast<size_t>(d)], {}};
    if (axis.size == 1) {
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const int own = d - dims + static_cast<int>(operands[i]->dim());
      axis.stride[static_cast<size_t>(i)] = own < 0 || operands[i]->sizes()[static_cast<size_t>(own)] == 1
                                                ? 0
                                                : operands[i]->strides()[static_cast<size_t>(own)];
    }
    axes[static_cast<size_t>(rank++)] = axis;
  }
  // By insertion: there are few axes, mostly in order, and std::stable_sort allocates.
  for (int k = 1; k < rank; ++k) {
    for (int j = k;
         j > 0 && axes[static_cast<size_t>(j - 1)].stride[0] < axes[static_cast<size_t>(j)].stride[0]; --j) {
      std::swap(axes[static_cast<size_t>(j - 1)], axes[static_cast<size_t>(j)]);
    }
  }
  int joined = 0;
  for (int k = 0; k < rank; ++k) {
    const Axis& inner = axes[static_cast<size_t>(k)];
    if (joined > 0) {
      Axis& outer = axes[static_cast<size_t>(joined - 1)];
      bool one_stride = true;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
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
  Convert convert;    // null: the function's arrays are the operand's memory
  bool is_one_value;  // the same element throughout, so that it is converted once
};

}  // namespace

bool iterate(KernelRuntimeContext& context, const Tensor* const* tensors, const ScalarType* computed,
             int count, Loop loop, const void* f) {
  if (tensors[0]->dim() > kMaxDims) {
    return refuse(context, Error::InvalidArgument, "Tensors of %d dimensions are not supported: at most %d",
                  static_cast<int>(tensors[0]->dim()), kMaxDims);
  }
  const Walk walk(tensors, count);
  if (walk.numel == 0) {
    return true;
  }
  static constexpr Axis kSingle{1, {}};
  const Axis& column = walk.rank > 0 ? walk.axes[static_cast<size_t>(walk.rank - 1)] : kSingle;
  const Axis& row = walk.rank > 1 ? walk.axes[static_cast<size_t>(walk.rank - 2)] : kSingle;
  const int outer_axes = std::max(0, walk.rank - 2);

  // A tile is a part of one row or a number of whole ones.
  const int64_t tile_rows = std::min(row.size, std::max<int64_t>(1, kTile / column.size));
  std::array<Operand, kMaxOperands> operands;
  bool in_place = true;
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    const bool is_dense =
        (column.stride[k] == 1 || column.size == 1) && (tile_rows == 1 || row.stride[k] == column.size);
    const ScalarType dtype = tensors[i]->scalar_type();
    operands[k] = {static_cast<char*>(tensors[i]->mutable_data_ptr()),
                   static_cast<int64_t>(executorch::runtime::elementSize(dtype)), nullptr,
                   i > 0 && tensors[i]->numel() == 1 && walk.numel > 1};
    if (dtype == computed[i] && is_dense && !operands[k].is_one_value) {
      continue;
    }
    in_place = false;
    operands[k].convert = i == 0 ? conversion(computed[i], dtype) : conversion(dtype, computed[i]);
    if (operands[k].convert == nullptr || (i == 0 && !is_dense)) {
      return refuse(context, Error::NotSupported,
                    operands[k].convert == nullptr
                        ? "Operands of dtype %s that are calculated with as %s are not part of this build"
                        : "An out of dtype %s (calculated as %s) whose elements overlap or leave gaps is not "
                          "supported",
                    name_of(dtype), name_of(computed[i]));
    }
  }
  const int64_t tile_columns = tile_rows > 1 ? column.size : std::min(column.size, in_place ? kGrain : kTile);
  const int64_t tiles_in_row = (column.size + tile_columns - 1) / tile_columns;
  const int64_t tiles_in_plane = (row.size + tile_rows - 1) / tile_rows * tiles_in_row;
  const int64_t tiles = walk.numel / (row.size * column.size) * tiles_in_plane;
  const int64_t grain = std::max<int64_t>(1, kGrain / (tile_rows * tile_columns));

  parallel(tiles, grain, [&](int64_t begin, int64_t end) {
    alignas(64) unsigned char buffers[kMaxOperands][kTile * sizeof(int64_t)];
    std::array<bool, kMaxOperands> is_filled{};
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t in_plane = tile % tiles_in_plane;
      const int64_t first_row = in_plane / tiles_in_row * tile_rows;
      const int64_t first_column = in_plane % tiles_in_row * tile_columns;
      const int64_t rows = std::min(tile_rows, row.size - first_row);
      const int64_t columns = std::min(tile_columns, column.size - first_column);
      std::array<int64_t, kMaxOperands> offset;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        offset[i] = first_row * row.stride[i] + first_column * column.stride[i];
      }
      int64_t rest = tile / tiles_in_plane;
      for (int d = outer_axes; d-- > 0;) {
        const Axis& axis = walk.axes[static_cast<size_t>(d)];
        const int64_t at = rest % axis.size;
        rest /= axis.size;
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
          offset[i] += at * axis.stride[i];
        }
      }
      const void* in[kMaxOperands];
      for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
        const Operand& operand = operands[i];
        const char* const data = operand.data + offset[i] * operand.element_size;
        if (operand.convert == nullptr) {
          in[i - 1] = data;
          continue;
        }
        in[i - 1] = buffers[i];
        if (!operand.is_one_value) {
          operand.convert(data, {rows, columns, row.stride[i], column.stride[i]}, buffers[i]);
        } else if (!is_filled[i]) {
          operand.convert(operand.data, {1, tile_rows * tile_columns, 0, 0}, buffers[i]);
          is_filled[i] = true;
        }
      }
      char* const out = operands[0].data + offset[0] * operands[0].element_size;
      if (operands[0].convert == nullptr) {
        loop(f, out, in, rows * columns);
      } else {
        loop(f, buffers[0], in, rows * columns);
        operands[0].convert(buffers[0], {1, rows * columns, 0, 1}, out);
      }
    }
  });
  return true;
}

}  // namespace detail
}  // namespace opsmith::portable
