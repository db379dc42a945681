// Moves elements between strided views of memory by their width, whatever their dtype: the loop behind it
// serves every operator that only rearranges (views, cat, pad, flip, repeat, ...).
#pragma once

#include <cstdint>
#include <cstring>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "conversion.h"

namespace opsmith::portable {

// An element as so many bytes: complex double is the widest.
struct Bytes16 {
  uint64_t low;
  uint64_t high;
};

// Calls f(U{}) with a type that is as wide as the elements. The widths of all dtypes are powers of two.
template <class F>
void with_width(int64_t width, const F& f) {
  switch (width) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(Bytes16{});
  }
}

// Strided memory. Strides count elements; those of a source may be 0 (expanded) or negative (flipped).
template <class Pointer>
struct Strided {
  Pointer data;  // of the element at the origin
  Dims strides;
};

using Source = Strided<const char*>;
using Destination = Strided<char*>;

inline Source source_of(const Tensor& t) {
  return {static_cast<const char*>(t.const_data_ptr()), strides_of(t)};
}

inline Destination destination_of(Tensor& t) {
  return {static_cast<char*>(t.mutable_data_ptr()), strides_of(t)};
}

// Copies n elements, strides apart in elements.
using MoveLine = void (*)(int64_t n, const char* from, int64_t from_stride, char* to, int64_t to_stride);

MoveLine line_mover(int64_t width);

// Copies `sizes` elements of `width` bytes. The views do not overlap.
void copy_strided(const Dims& sizes, int64_t width, const Source& from, const Destination& to);

// Copies `sizes` elements from one dtype to another. Refuses dtypes between which there is no conversion,
// unless they are the same. The views do not overlap.
bool convert_strided(KernelRuntimeContext& context, const Dims& sizes, ScalarType from_dtype,
                     const Source& from, ScalarType to_dtype, const Destination& to);

// Puts one element of `width` bytes at every place of the view.
inline void fill_strided(const Dims& sizes, int64_t width, const void* element, const Destination& to) {
  Source from{static_cast<const char*>(element), sizes};
  for (int64_t i = 0; i < sizes.rank; ++i) {
    from.strides[i] = 0;
  }
  copy_strided(sizes, width, from, to);
}

// The number as one element of `dtype`. Refuses a number that does not fit, as ATen's fill_ does.
bool element_of(KernelRuntimeContext& context, const Scalar& value, ScalarType dtype, Bytes16& element);

// Copies the whole of `self`, which broadcasts to `out`, converted to its dtype.
inline bool copy_elements(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  Source from = source_of(self);
  from.strides.rank = out.dim();
  for (int64_t d = 0; d < out.dim(); ++d) {
    from.strides[d] = broadcast_stride(self, d, out.dim());
  }
  return convert_strided(context, sizes_of(out), self.scalar_type(), from, out.scalar_type(),
                         destination_of(out));
}

}  // namespace opsmith::portable
