// The part of reducer.h that knows no element types: dimensions and threads.
#include "reducer.h"

namespace opsmith::portable {
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
  StridedIterator<1 + kMaxResults> kept;
  StridedIterator<1> reduced;

  Geometry(const Tensor& self, DimSet dims, bool keepdim, bool ordered, Tensor* const* outs, int results) {
    size_t out_dim = 0;
    for (size_t d = 0; d < static_cast<size_t>(self.dim()); ++d) {
      const int64_t stride = self.strides()[d];
      if (contains(dims, static_cast<int64_t>(d))) {
        reduced.add(self.sizes()[d], {stride});
        out_dim += keepdim ? 1 : 0;
      } else {
        kept.add(self.sizes()[d],
                 {stride, outs[0]->strides()[out_dim], results == 1 ? 0 : outs[1]->strides()[out_dim]});
        ++out_dim;
      }
    }
    kept.reorder(0);
    kept.coalesce();
    if (!ordered) {
      reduced.reorder(0);
    }
    reduced.coalesce();
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
    const TileIterator<1> tiles(geometry_.reduced, kTile);
    const int64_t results = geometry_.kept.numel();
    const int64_t length = geometry_.reduced.numel();
    if (results == 1 && length >= 2 * kGrain) {
      return one_result(tiles);
    }
    parallel(results, grain_size(length), [&](int64_t begin, int64_t end) {
      alignas(16) unsigned char state[kMaxState];
      for (int64_t k = begin; k < end; ++k) {
        const Offsets at = geometry_.kept.offsets(k);
        reducer_.start(reducer_.policy, state, 1);
        fold(tiles, at[0], 0, tiles.count(), state);
        write(state, 1, at);
      }
    });
  }

  // Results next to each other, kColumns at a time, from one element of each after the other.
  void columns() const {
    const auto column = geometry_.kept.innermost();
    const int64_t outers = geometry_.kept.numel() / column.size;
    const int64_t length = geometry_.reduced.numel();
    const int64_t blocks = (column.size + kColumns - 1) / kColumns;
    const int64_t grain = grain_size(length * std::min(column.size, kColumns));
    parallel(outers * blocks, grain, [&](int64_t begin, int64_t end) {
      alignas(16) unsigned char states[kColumns * kMaxState];
      alignas(16) unsigned char buffer[kColumns * sizeof(int64_t)];
      for (int64_t task = begin; task < end; ++task) {
        Offsets at = geometry_.kept.offsets(task / blocks, 1);
        const int64_t first = task % blocks * kColumns;
        const int64_t n = std::min(kColumns, column.size - first);
        for (size_t i = 0; i < at.size(); ++i) {
          at[i] += first * column.stride[i];
        }
        reducer_.start(reducer_.policy, states, n);
        const Plane plane{1, n, 0, column.stride[0]};
        int64_t k = 0;
        geometry_.reduced.for_each(0, length, [&](const auto& element, const auto&) {
          const void* const elements =
              source_.array(at[0] + element[0], plane, column.stride[0] == 1, buffer);
          reducer_.columns(reducer_.policy, states, elements, n, k++);
        });
        write(states, n, at);
      }
    });
  }

 private:
  using Offsets = std::array<int64_t, 1 + kMaxResults>;

  // Adds tiles begin..end-1 of the result whose first element is at `base`.
  void fold(const TileIterator<1>& tiles, int64_t base, int64_t begin, int64_t end, void* state) const {
    alignas(16) unsigned char buffer[kTile * sizeof(int64_t)];
    const bool is_dense = tiles.is_dense(0);
    for (int64_t k = begin; k < end; ++k) {
      const auto tile = tiles[k];
      const void* const elements =
          source_.array(base + tile.offset[0], tiles.plane(tile, 0), is_dense, buffer);
      reducer_.row(reducer_.policy, state, elements, tile.rows * tile.columns, tile.first);
    }
  }

  // The only result, in pieces that do not depend on the number of threads.
  void one_result(const TileIterator<1>& tiles) const {
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
    write(states, 1, {});
  }

  // The results of n states, along the innermost kept dimension.
  void write(const void* states, int64_t n, const Offsets& at) const {
    alignas(16) unsigned char values[kMaxResults][kColumns * sizeof(int64_t)];
    alignas(16) unsigned char converted[kColumns * sizeof(int64_t)];
    void* const results[kMaxResults] = {values[0], values[1]};
    reducer_.finish(reducer_.policy, states, n, results);
    for (size_t i = 0; i < static_cast<size_t>(reducer_.results); ++i) {
      char* const out =
          static_cast<char*>(outs_[i]->mutable_data_ptr()) + static_cast<size_t>(at[i + 1]) * out_size_[i];
      const int64_t stride = geometry_.kept.innermost().stride[i + 1];
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

bool reduce(KernelRuntimeContext& context, const Reducer& reducer, const Tensor& self, DimSet dims,
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
  OPSMITH_CHECK(context, reduction.is_selected(), NotSupported, false,
                "Reductions of dtype %s that are calculated as %s are not part of this build", name_of(dtype),
                name_of(reducer.element));
  // Side by side where results are the denser direction, or where each has too few elements for a loop.
  constexpr int64_t kShort = 16;
  const int64_t length = geometry.reduced.numel();
  const auto kept = geometry.kept.innermost();
  if (length > 0 && geometry.kept.rank() > 0 && geometry.reduced.rank() > 0 &&
      (kept.stride[0] < geometry.reduced.innermost().stride[0] ||
       (length <= kShort && kept.size >= kShort))) {
    reduction.columns();
  } else {
    reduction.rows();
  }
  return true;
}

}  // namespace detail
}  // namespace opsmith::portable
