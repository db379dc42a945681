// What geometry.h declares: shapes are small, so this is compiled once rather than into every kernel.
#include "geometry.h"

#include <utility>

namespace opsmith::portable {
namespace {

Dims dims_of(ArrayRef<int32_t> values) {
  Dims dims;
  for (const int32_t each : values) {
    dims.push_back(each);
  }
  return dims;
}

}  // namespace

Dims::Dims(IntList values) {
  for (const int64_t each : values) {
    push_back(each);
  }
}

void Dims::insert(int64_t at, int64_t each) {
  for (int64_t i = rank++; i > at; --i) {
    value[i] = value[i - 1];
  }
  value[at] = each;
}

void Dims::erase(int64_t at) {
  --rank;
  for (int64_t i = at; i < rank; ++i) {
    value[i] = value[i + 1];
  }
}

int64_t Dims::product(int64_t begin, int64_t end) const {
  int64_t product = 1;
  for (int64_t i = begin; i < end; ++i) {
    product *= value[i];
  }
  return product;
}

bool Dims::operator==(const Dims& other) const {
  bool equal = rank == other.rank;
  for (int64_t i = 0; equal && i < rank; ++i) {
    equal = value[i] == other.value[i];
  }
  return equal;
}

Dims sizes_of(const Tensor& t) {
  return dims_of(t.sizes());
}

Dims strides_of(const Tensor& t) {
  return dims_of(t.strides());
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  int64_t stride = 1;
  for (int64_t i = sizes.rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return strides;
}

bool is_contiguous(const Tensor& t) {
  int64_t expected = 1;
  for (int64_t i = t.dim() - 1; i >= 0; --i) {
    const int64_t size = t.sizes()[i];
    if (size == 0) {
      return true;
    }
    if (size != 1 && t.strides()[i] != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.dim() != b.dim()) {
    return false;
  }
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.sizes()[i] != b.sizes()[i] || (a.sizes()[i] > 1 && a.strides()[i] != b.strides()[i])) {
      return false;
    }
  }
  return true;
}

int64_t wrap_dim(KernelRuntimeContext& context, int64_t dim, int64_t rank) {
  const int64_t range = rank == 0 ? 1 : rank;
  OPSMITH_CHECK(context, dim >= -range && dim < range, InvalidArgument, -1,
                "Dimension out of range (expected to be in range of [%" PRId64 ", %" PRId64
                "], but got %" PRId64 ")",
                -range, range - 1, dim);
  return dim < 0 ? dim + range : dim;
}

bool take_diagonal(KernelRuntimeContext& context, int64_t offset, int64_t dim1, int64_t dim2, Dims& sizes,
                   Dims& strides, int64_t& origin) {
  const int64_t a = wrap_dim(context, dim1, sizes.rank);
  const int64_t b = a < 0 ? a : wrap_dim(context, dim2, sizes.rank);
  if (b < 0) {
    return false;
  }
  OPSMITH_CHECK(context, a != b, InvalidArgument, false,
                "diagonal dimensions cannot be identical %" PRId64 ", %" PRId64, dim1, dim2);
  const int64_t along_a = offset < 0 ? sizes[a] + offset : sizes[a];
  const int64_t along_b = offset < 0 ? sizes[b] : sizes[b] - offset;
  const int64_t length = along_a < along_b ? along_a : along_b;
  const int64_t stride = strides[a] + strides[b];
  if (length > 0) {
    origin += offset < 0 ? -offset * strides[a] : offset * strides[b];
  }
  sizes.erase(a > b ? a : b);
  strides.erase(a > b ? a : b);
  sizes.erase(a > b ? b : a);
  strides.erase(a > b ? b : a);
  sizes.push_back(length > 0 ? length : 0);
  strides.push_back(stride);
  return true;
}

bool resize(KernelRuntimeContext& context, Tensor& out, const Dims& sizes) {
  executorch::aten::SizesType narrow[kMaxRank] = {};
  for (int64_t i = 0; i < sizes.rank; ++i) {
    narrow[i] = static_cast<executorch::aten::SizesType>(sizes[i]);
  }
  return resize(context, out, narrow, static_cast<int>(sizes.rank));
}

bool same_dtype(KernelRuntimeContext& context, const Tensor& self, const Tensor& out) {
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type(), InvalidArgument, false,
                "out must have self's dtype, %s, but has %s", name_of(self.scalar_type()),
                name_of(out.scalar_type()));
  return true;
}

}  // namespace opsmith::portable
