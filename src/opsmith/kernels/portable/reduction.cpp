// The part of reduction.h that knows no element types: dimensions, axes and threads.
#include "reduction.h"

namespace opsmith::portable {
namespace {

bool wrapped(KernelRuntimeContext& context, const Tensor& self, int64_t dim, int& result) {
  const int64_t rank = std::max<int64_t>(1, self.dim());  // a Tensor without dimensions takes 0 and -1
  if (dim < -rank || dim >= rank) {
    return refuse(context, Error::InvalidArgument,
                  "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
                  static_cast<long long>(-rank), static_cast<long long>(rank - 1),
                  static_cast<long long>(dim));
  }
  result = static_cast<int>(dim < 0 ? dim + rank : dim);
  return true;
}

}  // namespace

bool reduced_dims(KernelRuntimeContext& context, const Tensor& self,
                  const executorch::aten::OptionalArrayRef<int64_t>& dims, Dims& reduced) {
  if (self.dim() > kMaxDims) {
    return refuse_rank(context, static_cast<int>(self.dim()));
  }
  reduced = (Dims{1} << self.dim()) - 1;
  if (!dims.has_value() || dims->empty()) {
    return true;
  }
  Dims named = 0;
  for (const int64_t given : *dims) {
    int dim = 0;
    if (!wrapped(context, self, given, dim)) {
      return false;
    }
    if (contains(named, dim)) {
      return refuse(context, Error::InvalidArgument, "dim %d appears multiple times in the list of dims",
                    dim);
    }
    named |= Dims{1} << dim;
  }
  reduced &= named;
  return true;
}

bool reduced_dim(KernelRuntimeContext& context, const Tensor& self, int64_t dim, Dims& reduced) {
  return reduced_dims(context, self, executorch::aten::ArrayRef<int64_t>(dim), reduced);
}

int64_t reduced_length(const Tensor& self, Dims reduced) {
  int64_t length = 1;
  for (int d = 0; d < static_cast<int>(self.dim()); ++d) {
    length *= contains(reduced, d) ? self.sizes()[static_cast<size_t>(d)] : 1;
  }
  return length;
}

bool resize_to_reduced(KernelRuntimeContext& context, Tensor& out, const Tensor& self, Dims reduced,
                       bool keepdim) {
  executorch::aten::SizesType sizes[kMaxDims];
  int rank = 0;
  for (int d = 0; d < static_cast<int>(self.dim()); ++d) {
    if (!contains(reduced, d)) {
      sizes[rank++] = self.sizes()[static_cast<size_t>(d)];
    } else if (keepdim) {
      sizes[rank++] = 1;
    }
  }
  return resize(context, out, sizes, rank);
}

Slices slices_along(const Tensor& contiguous, int dim) {
  Slices slices{1, 1, 1};
  for (int d = 0; d < static_cast<int>(contiguous.dim()); ++d) {
    const int64_t size = contiguous.sizes()[static_cast<size_t>(d)];
    (d < dim ? slices.outer : d == dim ? slices.length : slices.inner) *= size;
  }
  return slices;
}

namespace detail {
namespace {

// Where a reduction's elements lie: operand 0 is the operand, 1 and 2 are the outs.
struct Geometry {
  Walk kept;
  Walk reduced;

  Geometry(const Tensor& self, Dims dims, bool keepdim, bool ordered, Tensor* const* outs, int results) {
    kept.operands = 1 + results;
    reduced.operands = 1;
    size_t out_dim = 0;
    for (int d = 0; d < static_cast<int>(self.dim()); ++d) {
      Axis axis{self.sizes()[static_cast<size_t>(d)], {self.strides()[static_cast<size_t>(d)]}};
      if (contains(dims, d)) {
        reduced.add(axis);
        out_dim += keepdim ? 1 : 0;
        continue;
      }
      for (int i = 0; i < results; ++i) {
        axis.stride[static_cast<size_t>(i + 1)] = outs[i]->strides()[out_dim];
      }
      kept.add(axis);
      ++out_dim;
    }
    kept.order();
    kept.join();
    if (!ordered) {
      reduced.order();
    }
    reduced.join();
  }
};

// The operand's elements as dense arrays of the reducer's type.
struct Source {
  const char* data;
  int64_t element_size;
  Convert convert;  // needed where the dtypes differ or elements do not lie next to each other
  bool is_element;  // the dtype is the reducer's

  const void* array(int64_t offset, const Plane& plane, bool is_dense, void* buffer) const {
    const char* const first = data + offset * element_size;
    if (is_element && is_dense) {
      return first;
    }
    convert(first, plane, buffer);
    return buffer;
  }
};

class Reduction {
 public:
  Reduction(const Reducer& reducer, const Source& source, const Geometry& geometry, Tensor* const* outs)
      : reducer_(reducer), source_(source), geometry_(geometry), outs_(outs) {
    for (int i = 0; i < reducer.results; ++i) {
      const ScalarType dtype = outs[i]->scalar_type();
      out_size_[i] = executorch::runtime::elementSize(dtype);
      convert_[i] = conversion(reducer.result[i], dtype);
    }
  }

  bool is_selected() const {
    return source_.convert != nullptr && convert_[0] != nullptr &&
           (reducer_.results == 1 || convert_[1] != nullptr);
  }

  // Each result from tiles of its own elements.
  void rows() const {
    const Tiles tiles(geometry_.reduced, kTile);
    const Tiles each(geometry_.kept, 1);
    const int64_t length = geometry_.reduced.numel();
    if (each.count() == 1 && length >= 2 * kGrain) {
      return one_result(tiles);
    }
    parallel(each.count(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, length)),
             [&](int64_t begin, int64_t end) {
               alignas(16) unsigned char state[kMaxState];
               for (int64_t k = begin; k < end; ++k) {
                 const Tiles::Tile at = each[k];
                 reducer_.start(reducer_.policy, state, 1);
                 fold(tiles, at.offset[0], 0, tiles.count(), state);
                 write(state, 1, at, 0);
               }
             });
  }

  // Results next to each other, kColumns at a time, from one element of each after the other.
  void columns() const {
    const Axis& column = geometry_.kept.axes[static_cast<size_t>(geometry_.kept.rank - 1)];
    Walk outer = geometry_.kept;
    --outer.rank;
    const Tiles outers(outer, 1);
    const Tiles elements(geometry_.reduced, 1);
    const int64_t blocks = (column.size + kColumns - 1) / kColumns;
    const int64_t grain = std::max<int64_t>(1, kGrain / (elements.count() * std::min(column.size, kColumns)));
    parallel(outers.count() * blocks, grain, [&](int64_t begin, int64_t end) {
      alignas(16) unsigned char states[kColumns * kMaxState];
      alignas(16) unsigned char buffer[kColumns * sizeof(int64_t)];
      for (int64_t task = begin; task < end; ++task) {
        Tiles::Tile at = outers[task / blocks];
        const int64_t first = task % blocks * kColumns;
        const int64_t n = std::min(kColumns, column.size - first);
        for (size_t i = 0; i < static_cast<size_t>(geometry_.kept.operands); ++i) {
          at.offset[i] += first * column.stride[i];
        }
        reducer_.start(reducer_.policy, states, n);
        const Plane plane{1, n, 0, column.stride[0]};
        for (int64_t k = 0; k < elements.count(); ++k) {
          const int64_t offset = at.offset[0] + elements[k].offset[0];
          reducer_.columns(reducer_.policy, states,
                           source_.array(offset, plane, column.stride[0] == 1, buffer), n, k);
        }
        write(states, n, at, 1);
      }
    });
  }

 private:
  // Adds tiles begin..end-1 of the result whose first element is at `base`.
  void fold(const Tiles& tiles, int64_t base, int64_t begin, int64_t end, void* state) const {
    alignas(16) unsigned char buffer[kTile * sizeof(int64_t)];
    const bool is_dense = tiles.is_dense(0);
    for (int64_t k = begin; k < end; ++k) {
      const Tiles::Tile tile = tiles[k];
      const void* const elements =
          source_.array(base + tile.offset[0], tiles.plane(tile, 0), is_dense, buffer);
      reducer_.row(reducer_.policy, state, elements, tile.rows * tile.columns, tile.first);
    }
  }

  // The only result, in pieces that do not depend on the number of threads.
  void one_result(const Tiles& tiles) const {
    constexpr int64_t kMaxPieces = 256;
    const int64_t tiles_in_piece =
        std::max<int64_t>(kGrain / tiles.elements(), (tiles.count() + kMaxPieces - 1) / kMaxPieces);
    const int64_t pieces = (tiles.count() + tiles_in_piece - 1) / tiles_in_piece;
    alignas(16) unsigned char states[kMaxPieces * kMaxState];
    reducer_.start(reducer_.policy, states, pieces);
    parallel(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        fold(tiles, 0, piece * tiles_in_piece, std::min(tiles.count(), (piece + 1) * tiles_in_piece),
             states + static_cast<size_t>(piece) * reducer_.state_size);
      }
    });
    for (int64_t piece = 1; piece < pieces; ++piece) {
      reducer_.merge(reducer_.policy, states, states + static_cast<size_t>(piece) * reducer_.state_size);
    }
    write(states, 1, Tiles(geometry_.kept, 1)[0], 0);
  }

  // The results of n states, `axes_up` axes up from the densest kept axis apart.
  void write(const void* states, int64_t n, const Tiles::Tile& at, int axis_from_end) const {
    alignas(16) unsigned char values[kMaxResults][kColumns * sizeof(int64_t)];
    alignas(16) unsigned char converted[kColumns * sizeof(int64_t)];
    void* const results[kMaxResults] = {values[0], values[1]};
    reducer_.finish(reducer_.policy, states, n, results);
    for (size_t i = 0; i < static_cast<size_t>(reducer_.results); ++i) {
      char* const out = static_cast<char*>(outs_[i]->mutable_data_ptr()) +
                        static_cast<size_t>(at.offset[i + 1]) * out_size_[i];
      const int64_t stride =
          axis_from_end == 0
              ? 1
              : geometry_.kept.axes[static_cast<size_t>(geometry_.kept.rank - axis_from_end)].stride[i + 1];
      if (n == 1 || stride == 1) {
        convert_[i](values[i], {1, n, 0, 1}, out);
      } else {
        convert_[i](values[i], {1, n, 0, 1}, converted);
        spread(out_size_[i], converted, out, stride, n);
      }
    }
  }

  const Reducer& reducer_;
  const Source& source_;
  const Geometry& geometry_;
  Tensor* const* outs_;
  size_t out_size_[kMaxResults];
  Convert convert_[kMaxResults] = {nullptr, nullptr};
};

}  // namespace

bool reduce(KernelRuntimeContext& context, const Reducer& reducer, const Tensor& self, Dims dims,
            bool keepdim, bool ordered, Tensor* const* outs) {
  if (outs[0]->numel() == 0) {
    return true;
  }
  const Geometry geometry(self, dims, keepdim, ordered, outs, reducer.results);
  const ScalarType dtype = self.scalar_type();
  const Source source{static_cast<const char*>(self.const_data_ptr()),
                      static_cast<int64_t>(executorch::runtime::elementSize(dtype)),
                      conversion(dtype, reducer.element), dtype == reducer.element};
  const Reduction reduction(reducer, source, geometry, outs);
  if (!reduction.is_selected()) {
    return refuse(context, Error::NotSupported,
                  "Reductions of dtype %s that are calculated as %s are not part of this build",
                  name_of(dtype), name_of(reducer.element));
  }
  // Side by side where results are the denser direction, or where each has too few elements for a loop.
  constexpr int64_t kShort = 16;
  const int64_t length = geometry.reduced.numel();
  const auto densest = [](const Walk& walk) { return walk.axes[static_cast<size_t>(walk.rank - 1)]; };
  if (length > 0 && geometry.kept.rank > 0 && geometry.reduced.rank > 0 &&
      (densest(geometry.kept).stride[0] < densest(geometry.reduced).stride[0] ||
       (length <= kShort && densest(geometry.kept).size >= kShort))) {
    reduction.columns();
  } else {
    reduction.rows();
  }
  return true;
}

}  // namespace detail
}  // namespace opsmith::portable
